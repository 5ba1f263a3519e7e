"""Decisions of a review: the table of a prediction folder, and what the review page exports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from segconf.config.records import parse_json
from segconf.csv_tables import parse_table, table_text
from segconf.data.cases import Case, images_of
from segconf.data.dicom_names import is_dicom_image
from segconf.errors import DataError
from segconf.files import described, inside, read_text, write_text
from segconf.images.image_format import format_of
from segconf.images.io import image_hash

DECISIONS = ("accept", "corrected", "edit", "reject")
"""The mask is right; it was put right in the page; it has to be; the case is of no use."""
CORRECTED = "corrected"
LABELED = ("accept", CORRECTED)
"""Those by which an image has a mask or a label."""
FORMATS = ("segconf corrections 1", "segconf decisions 1")
_WAY_OUT = "Give the .csv or .json file that the review page exports."


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a case.

    Attributes:
        case: name of the results, with `/` between folders.
        file: the image, relative to the folder that was predicted.
        decision: one of `DECISIONS`; empty where there is a note only.
        note: free text.
        decided_at: time in ISO 8601.
        image_sha256: of the file of the image; empty where an earlier version predicted it.
        label: name of the class that was accepted or chosen; empty where masks were predicted.
    """

    case: str
    file: str = ""
    decision: str = ""
    note: str = ""
    decided_at: str = ""
    image_sha256: str = ""
    label: str = ""


COLUMNS = tuple(field.name for field in fields(Decision))


def decisions_file(maps: Path) -> Path:
    """Where a prediction folder keeps its decisions."""
    return maps / "decisions.csv"


def read_decision_rows(path: Path) -> list[Decision]:
    """All rows of a file of decisions, in its order.

    Raises:
        DataError: the file is not one that the review page exports.
    """
    try:
        text = read_text(path)
        is_json = path.suffix.lower() == ".json"
        rows = _json_rows(text) if is_json else parse_table(text, ("case", "decision"))
        found = [_decision(row) for row in rows]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. {_WAY_OUT}") from None
    except (OSError, ValueError) as error:
        reason = described(error)
        raise DataError(f"{path}: no decisions of a review ({reason}). {_WAY_OUT}") from None
    names: set[str] = set()
    for row in found:
        if row.case in names:
            raise DataError(f"{path}: two decisions about {row.case}. Keep one of them.")
        names.add(row.case)
        if row.decision and row.decision not in DECISIONS:
            raise DataError(
                f"{path}: {row.case} has the decision '{row.decision}'. "
                f"Expected {', '.join(DECISIONS)}."
            )
    return found


def write_decisions(path: Path, rows: Iterable[Decision]) -> None:
    """Write a table of decisions, by case; complete or not at all.

    The column of labels is there where one has a label.
    """
    ordered = sorted(rows, key=lambda row: row.case)
    columns = COLUMNS if any(row.label for row in ordered) else COLUMNS[:-1]
    cells = [[getattr(row, name) for name in columns] for row in ordered]
    write_text(path, table_text(columns, cells))


def _decision(row: object) -> Decision:
    """A row as it was read; an earlier version wrote fewer columns.

    Raises:
        ValueError: it is none, or about a case that no folder can hold.
    """
    if not isinstance(row, Mapping) or not {"case", "decision"} <= row.keys():
        raise ValueError("a row without a case or a decision")
    texts = {name: "" if row.get(name) is None else row[name] for name in COLUMNS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("a cell that is no text")
    inside(Path(), texts["case"])
    return Decision(**texts)


def decided_cases(
    decisions: Mapping[str, str], cases: Sequence[Case], hashes: Mapping[str, str]
) -> tuple[dict[str, tuple[Case, ...]], list[str]]:
    """Which cases a decision is about: those of its name, or all slices of a volume of that name.

    Names are paths below the folder that was predicted, which may be any folder above the image: a
    name that is no id is compared with the end of the ids. DICOM images are predicted under their
    UIDs, so those without a fitting name are known by their content.

    Args:
        decisions: by name of the results.
        cases: of the data set.
        hashes: SHA-256 of the images that were decided, by the same names, where it is known.

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
        exact = [case for case in by_name.get(name, []) if name in (case.id, case.file_id)]
        fitting = exact or by_name.get(name) or by_name.get(PurePosixPath(name).name, [])
        if len({case.image_path for case in fitting}) > 1:
            raise DataError(
                f"decision about {name}: several images have that name, such as "
                f"{fitting[0].image_path} and {fitting[-1].image_path}. Predict the folder that "
                "holds them all, so that the review tells them apart."
            )
        if fitting:
            matched[name] = tuple(fitting)
    unknown = {name: hashes.get(name, "") for name in decisions if name not in matched}
    if any(unknown.values()):
        by_hash = _dicom_by_hash(cases)
        matched |= {name: by_hash[sha256] for name, sha256 in unknown.items() if sha256 in by_hash}
    return matched, [name for name in decisions if name not in matched]


def _names(case: Case) -> set[str]:
    ids = {case.id, case.file_id}
    return ids | {PurePosixPath(name).name for name in ids}


def _dicom_by_hash(cases: Sequence[Case]) -> dict[str, tuple[Case, ...]]:
    """Cases of DICOM images by the hash of their files; copies of an image are one."""
    found: dict[str, tuple[Case, ...]] = {}
    for image in images_of(cases):
        files = format_of(image.path).files(image.path) if is_dicom_image(image.path) else ()
        if files and all(file.exists() for file in files):
            sha256 = image_hash(image.path)
            found[sha256] = (*found.get(sha256, ()), *image.cases)
    return found


def _json_rows(text: str) -> list[object]:
    content = parse_json(text)
    if not isinstance(content, dict) or content.get("format") not in FORMATS:
        raise ValueError(f'expected "format": "{FORMATS[0]}"')
    rows = content.get("decisions")
    if not isinstance(rows, list):
        raise ValueError('expected a list called "decisions"')  # noqa: TRY004 - of the content
    return rows
