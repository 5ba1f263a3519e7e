"""Decisions of a review: the file that the review page exports, CSV or JSON."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from segconf.data.cases import Case
from segconf.errors import DataError

DECISIONS = ("accept", "edit", "reject")
FORMAT = "segconf decisions 1"


def read_decisions(path: Path) -> dict[str, str]:
    """Decision by case, `accept`, `edit` or `reject`; cases with a note alone are left out.

    Raises:
        DataError: the file is not one that the review page exports.
    """
    way_out = "Give the .csv or .json file that the review page exports."
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = _json_rows(text) if path.suffix.lower() == ".json" else _csv_rows(text)
        decisions = {str(row["case"]): str(row["decision"]) for row in rows if row["decision"]}
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. {way_out}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{error} missing" if isinstance(error, KeyError) else str(error)
        raise DataError(f"{path}: no decisions of a review ({reason}). {way_out}") from None
    unknown = {case: found for case, found in decisions.items() if found not in DECISIONS}
    for case, found in unknown.items():
        raise DataError(
            f"{path}: {case} has the decision '{found}'. Expected {', '.join(DECISIONS)}."
        )
    return decisions


def decided_cases(
    decisions: Mapping[str, str], cases: Sequence[Case]
) -> tuple[dict[str, tuple[Case, ...]], list[str]]:
    """Which cases a decision is about: those of its name, or all slices of a volume of that name.

    Names are paths below the folder that was predicted, which may be any folder above the image: a
    name that is no id is compared with the end of the ids.

    Returns:
        The cases of every decided name, and the names that are none of the cases.

    Raises:
        DataError: a name fits several images.
    """
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        for name in _names(case):
            by_name.setdefault(name, []).append(case)
    matched: dict[str, tuple[Case, ...]] = {}
    for name in decisions:
        exact = [case for case in by_name.get(name, []) if name in (case.id, _file_id(case))]
        fitting = exact or by_name.get(name) or by_name.get(PurePosixPath(name).name, [])
        if len({case.image_path for case in fitting}) > 1:
            raise DataError(
                f"decision about {name}: several images have that name, such as "
                f"{fitting[0].image_path} and {fitting[-1].image_path}. Predict the folder that "
                "holds them all, so that the review tells them apart."
            )
        if fitting:
            matched[name] = tuple(fitting)
    return matched, [name for name in decisions if name not in matched]


def _names(case: Case) -> set[str]:
    ids = {case.id, _file_id(case)}
    return ids | {PurePosixPath(name).name for name in ids}


def _file_id(case: Case) -> str:
    """Id of the file: that of a slice without the number of the slice."""
    return case.id if case.slice_index is None else case.id.rpartition("_z")[0]


def _json_rows(text: str) -> list[dict[str, Any]]:
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f'expected "format": "{FORMAT}"')
    rows: list[dict[str, Any]] = content["decisions"]
    return rows


def _csv_rows(text: str) -> list[dict[str, Any]]:
    reader = csv.DictReader(text.splitlines())
    missing = [name for name in ("case", "decision") if name not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"no column called {' or '.join(missing)}")
    return list(reader)
