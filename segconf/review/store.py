"""What a review leaves in a prediction folder: `decisions.csv`, and `corrected/` or `labels.csv`.

Both doors lead here: the server, which saves case by case, and the file that the page exports.
"""

import hashlib
import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from segconf.config.records import parse_json
from segconf.data.cases import raise_problems
from segconf.data.corrections import (
    CorrectionRecord,
    corrected_file,
    read_corrected_slice,
    read_correction,
    remove_correction,
    write_correction,
)
from segconf.data.decisions import (
    CORRECTED,
    Decision,
    decisions_file,
    read_decision_rows,
    write_decisions,
)
from segconf.data.label_tables import TABLE as LABELS
from segconf.data.label_tables import write_label_table
from segconf.errors import DataError
from segconf.files import read_text
from segconf.images.image_format import format_of
from segconf.images.run_length import encode_runs
from segconf.locks import locked
from segconf.results.label_rows import LabelRow
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.review.entries import Entry, checked_entry

FORMAT = "segconf corrections 1"


class ConflictError(DataError):
    """Somebody else has changed the case in the meantime."""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Cases of a file, those corrected, and those whose decision or mask was another before."""

    cases: tuple[str, ...]
    corrected: tuple[str, ...]
    replaced: tuple[str, ...]


class ReviewStore:
    """Decisions and corrections of one prediction folder."""

    def __init__(self, folder: PredictionFolder) -> None:
        """Read which cases there are.

        Raises:
            DataError: it is no prediction folder.
        """
        self.folder = folder
        self.record = folder.record()
        self.has_labels = bool(self.record.class_names)
        rows: Sequence[CaseRow | LabelRow]
        rows = folder.label_rows() if self.has_labels else folder.rows()
        self.rows = {row.case: row for row in rows}

    def state(self) -> dict[str, dict[str, Any]]:
        """Decision, note, time, whether there is a correction, and the version, by case."""
        decisions = self._decisions()
        found = {name: self._correction(name) for name in self.rows}
        corrections = {name: record for name, record in found.items() if record is not None}
        return {
            name: {
                **asdict(decisions.get(name, Decision(name))),
                "corrected": name in corrections,
                "version": self._version(decisions.get(name), corrections.get(name)),
            }
            for name in {*decisions, *corrections}
        }

    def corrected_mask(self, case: str) -> dict[str, Any] | None:
        """Size and runs of the corrected mask of a case, if it has one."""
        record = self._correction(case)
        if record is None:
            return None
        mask = read_corrected_slice(self.folder.path, record)
        return {"size": list(mask.shape), "runs": encode_runs(mask)}

    def checked(self, case: str, values: Any, model: str | None) -> Entry:
        """An entry from what the page sent.

        Raises:
            DataError: it is about another model, image or prediction, or is no entry at all.
        """
        row = self.rows.get(case)
        if row is None:
            raise DataError(f"{case}: no such case in {self.folder.path}.")
        return checked_entry(row, values, self.record, model)

    def save(self, entry: Entry, *, version: str | None = None) -> str:
        """Keep an entry and return the new version of its case.

        Args:
            entry: from `checked`.
            version: that of the case when it was read; None overwrites whatever is there.

        Raises:
            ConflictError: the case has another version by now.
            DataError: it is called corrected, but there is no corrected mask.
        """
        name = entry.decision.case
        self._correction(name)  # refuses a folder of corrections that lies elsewhere
        with self._locked():
            current = self._version(self._decisions().get(name), self._correction(name))
            if version is not None and version != current:
                raise ConflictError(
                    f"{name}: was changed elsewhere in the meantime. Load that version, or "
                    "overwrite it."
                )
            self._keep([entry])
            return self._version(self._decisions().get(name), self._correction(name))

    def import_file(self, path: Path) -> ImportReport:
        """Save all entries of a file that the page exported, or none.

        Raises:
            DataError: the file cannot be read, or entries are about another model, other images
                or other masks; all of them are named.
        """
        document = _document(path)
        model = document.get("model_sha256")
        entries: dict[str, Entry] = {}
        problems: list[str] = []
        for values in document["decisions"]:
            name = str(values.get("case") if isinstance(values, dict) else None)
            try:
                entry = self.checked(name, values, model)
            except DataError as error:
                problems.append(str(error))
                continue
            if name in entries:
                problems.append(f"{name}: two decisions about one image")
            entries[name] = entry
        raise_problems(problems, path)
        with self._locked():
            before = self._decisions()
            replaced = [
                name for name, entry in entries.items() if self._replaces(before.get(name), entry)
            ]
            self._keep(list(entries.values()))
        corrected = [
            name
            for name, entry in entries.items()
            if entry.mask is not None or (self.has_labels and entry.decision.decision == CORRECTED)
        ]
        return ImportReport(tuple(entries), tuple(corrected), tuple(replaced))

    def _replaces(self, before: Decision | None, entry: Entry) -> bool:
        """Whether an entry changes an earlier decision, or a corrected mask."""
        if before is not None and _content(before) != _content(entry.decision):
            return True
        correction = self._correction(entry.decision.case)
        if correction is None or entry.mask is None:
            return correction is not None and entry.removes_mask
        return not np.array_equal(entry.mask, read_corrected_slice(self.folder.path, correction))

    def _locked(self) -> AbstractContextManager[None]:
        return locked(self.folder.path / "corrected", wait=True, task="saves a review there")

    def _keep(self, entries: Sequence[Entry]) -> None:
        """Write entries, all or none of them where one is not as it should be.

        Raises:
            DataError: one is called corrected, but there is no corrected mask.
        """
        for entry in entries:
            name = entry.decision.case
            stays = not entry.removes_mask and self._correction(name) is not None
            is_corrected = self.has_labels or entry.mask is not None or stays
            if entry.decision.decision == CORRECTED and not is_corrected:
                raise DataError(f"{name}: called corrected, but there is no corrected mask.")
        decisions = self._decisions()
        for entry in entries:
            self._save_mask(entry)
            decisions.pop(entry.decision.case, None)
            if entry.decision.decision or entry.decision.note:
                decisions[entry.decision.case] = entry.decision
        write_decisions(decisions_file(self.folder.path), decisions.values())
        if self.has_labels:
            labels = {one.file: one.label for one in decisions.values() if one.label}
            write_label_table(self.folder.path / LABELS, labels)

    def _decisions(self) -> dict[str, Decision]:
        path = decisions_file(self.folder.path)
        return {row.case: row for row in read_decision_rows(path)} if path.exists() else {}

    def _correction(self, case: str) -> CorrectionRecord | None:
        return None if self.has_labels else read_correction(self.folder.path, case)

    def _version(self, decision: Decision | None, correction: CorrectionRecord | None) -> str:
        """A name for this state of a case; empty while nothing is known about it."""
        if decision is None and correction is None:
            return ""
        parts: list[object] = [one and asdict(one) for one in (decision, correction)]
        if correction is not None:
            suffix = format_of(correction.file).map_suffix
            mask = corrected_file(self.folder.path, correction.case, suffix)
            parts.append(mask.stat().st_mtime_ns)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def _save_mask(self, entry: Entry) -> None:
        row = self.rows[entry.decision.case]
        if isinstance(row, LabelRow):
            return
        if entry.mask is not None:
            record = CorrectionRecord(
                case=row.case,
                file=row.file,
                slice=row.slice if row.slices > 1 else None,
                classes=self.record.scale.classes,
                corrected_at=entry.decision.decided_at,
                model_sha256=str(self.record.values["model"]["sha256"]),
                image_sha256=row.image_sha256,
                mask_sha256=row.mask_sha256,
            )
            write_correction(self.folder.path, record, entry.mask)
        elif entry.removes_mask and (earlier := self._correction(row.case)) is not None:
            remove_correction(self.folder.path, earlier)


def _content(decision: Decision) -> Decision:
    """What was decided, whenever it was."""
    return replace(decision, decided_at="")


def _document(path: Path) -> dict[str, Any]:
    way_out = "Give the .json file of the review page, or the .zip file of the page of a model."
    try:
        document = parse_json(read_text(path))
        if document["format"] != FORMAT or not isinstance(document["decisions"], list):
            raise ValueError(f'expected "format": "{FORMAT}"')  # noqa: TRY301 - one message
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. {way_out}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: no corrections of a review ({error}). {way_out}") from None
    found: dict[str, Any] = document
    return found
