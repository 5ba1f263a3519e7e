"""What a review leaves in a prediction folder: `decisions.csv` and `corrected/`, checked and saved.

Both doors lead here: the server, which saves case by case, and the file that the page exports.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

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
    DECISIONS,
    Decision,
    decisions_file,
    read_decision_rows,
    write_decisions,
)
from segconf.errors import DataError
from segconf.files import read_text
from segconf.images.image_format import format_of
from segconf.images.run_length import decode_runs, encode_runs
from segconf.images.types import ByteArray
from segconf.locks import locked
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow

FORMAT = "segconf corrections 1"
LONGEST_NOTE = 10_000
_LONGEST_TIME = 40
_SHOWN_HASH = 8


class ConflictError(DataError):
    """Somebody else has changed the case in the meantime."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the page says about a case, after all checks.

    Attributes:
        decision: to be kept; without decision and note it is removed.
        mask: (H, W) corrected mask; None to leave what is there.
        removes_mask: go back to the predicted mask.
    """

    decision: Decision
    mask: ByteArray | None = None
    removes_mask: bool = False


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Cases that were taken from a file, those with a mask, and those that differed before."""

    cases: tuple[str, ...]
    masks: tuple[str, ...]
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
        self.rows = {row.case: row for row in folder.rows()}
        self._model = str(self.record.values["model"]["sha256"])

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
            DataError: it is about another model, image or mask, or is no entry at all.
        """
        if not isinstance(values, dict):
            raise DataError(f"{case}: not an entry of a review, but {type(values).__name__}.")
        row = self.rows.get(case)
        if row is None:
            raise DataError(f"{case}: no such case in {self.folder.path}.")
        self._check_hashes(row, values, model)
        texts = [values.get(name) or "" for name in ("decision", "note", "decided_at")]
        limits = (max(map(len, DECISIONS)), LONGEST_NOTE, _LONGEST_TIME)
        for text, limit in zip(texts, limits, strict=True):
            if not isinstance(text, str) or len(text) > limit:
                raise DataError(f"{case}: expected text of at most {limit} characters.")
        if texts[0] and texts[0] not in DECISIONS:
            raise DataError(
                f"{case}: unknown decision '{texts[0]}'. Expected {', '.join(DECISIONS)}."
            )
        decision = Decision(case, row.file, texts[0], texts[1], texts[2], row.image_sha256)
        given = values.get("mask")
        mask = None if given is None else self._mask(row, given)
        return Entry(decision, mask, removes_mask=given is None and "mask" in values)

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
        with locked(self.folder.path / "corrected", wait=True, task="saves a review there"):
            decisions = self._decisions()
            correction = self._correction(name)
            current = self._version(decisions.get(name), correction)
            if version is not None and version != current:
                raise ConflictError(
                    f"{name}: was changed elsewhere in the meantime. Load that version, or "
                    "overwrite it."
                )
            stays = correction is not None and not entry.removes_mask
            if entry.decision.decision == "corrected" and entry.mask is None and not stays:
                raise DataError(f"{name}: called corrected, but there is no corrected mask.")
            self._save_mask(entry)
            decisions.pop(name, None)
            if entry.decision.decision or entry.decision.note:
                decisions[name] = entry.decision
            write_decisions(decisions_file(self.folder.path), decisions.values())
            return self._version(decisions.get(name), self._correction(name))

    def import_file(self, path: Path) -> ImportReport:
        """Save all entries of a file that the page exported, or none.

        Raises:
            DataError: the file cannot be read, or entries are about another model, other images
                or other masks; all of them are named.
        """
        document = _document(path)
        model = document.get("model_sha256")
        entries: list[Entry] = []
        problems: list[str] = []
        for values in document["decisions"]:
            name = values.get("case") if isinstance(values, dict) else None
            try:
                entries.append(self.checked(str(name), values, model))
            except DataError as error:
                problems.append(str(error))
        raise_problems(problems, path)
        before = self._decisions()
        replaced = []
        for entry in entries:
            earlier = before.get(entry.decision.case)
            if earlier is not None and replace(earlier, decided_at="") != replace(
                entry.decision, decided_at=""
            ):
                replaced.append(entry.decision.case)
            self.save(entry)
        names = tuple(entry.decision.case for entry in entries)
        masks = tuple(entry.decision.case for entry in entries if entry.mask is not None)
        return ImportReport(names, masks, tuple(replaced))

    def _decisions(self) -> dict[str, Decision]:
        path = decisions_file(self.folder.path)
        return {row.case: row for row in read_decision_rows(path)} if path.exists() else {}

    def _correction(self, case: str) -> CorrectionRecord | None:
        return read_correction(self.folder.path, case)

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

    def _check_hashes(self, row: CaseRow, values: dict[str, Any], model: str | None) -> None:
        expected = {
            "model": (self._model, model),
            "image": (row.image_sha256, values.get("image_sha256")),
            "predicted mask": (row.mask_sha256, values.get("mask_sha256")),
        }
        for word, (here, given) in expected.items():
            if here != given:
                raise DataError(
                    f"{row.case}: belongs to another {word} (SHA-256 {str(given)[:_SHOWN_HASH]}, "
                    f"here {here[:_SHOWN_HASH]}). Give corrections of this folder."
                )

    def _mask(self, row: CaseRow, given: Any) -> ByteArray:
        classes = self.record.scale.classes
        try:
            if list(given["size"]) != [row.height, row.width]:
                raise ValueError(f"its size is {given['size']}")  # noqa: TRY301 - one message
            mask = decode_runs(given["runs"], (row.height, row.width))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"{row.case}: not a mask of {row.height} x {row.width} pixels ({error})."
            ) from None
        if row.error or int(mask.max(initial=0)) >= classes:
            raise DataError(f"{row.case}: its mask has more than {classes} classes.")
        return mask

    def _save_mask(self, entry: Entry) -> None:
        row = self.rows[entry.decision.case]
        if entry.mask is not None:
            record = CorrectionRecord(
                case=row.case,
                file=row.file,
                slice=row.slice if row.slices > 1 else None,
                classes=self.record.scale.classes,
                corrected_at=entry.decision.decided_at,
                model_sha256=self._model,
                image_sha256=row.image_sha256,
                mask_sha256=row.mask_sha256,
            )
            write_correction(self.folder.path, record, entry.mask)
        elif entry.removes_mask and (earlier := self._correction(row.case)) is not None:
            remove_correction(self.folder.path, earlier)


def _document(path: Path) -> dict[str, Any]:
    way_out = "Give the .json file that the review page exports."
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
