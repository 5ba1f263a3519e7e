"""Rows of `cases.csv`: numbers and flags of a case."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from segconf.config.records import read_dataclass
from segconf.csv_tables import table_line
from segconf.errors import DataError
from segconf.images.image_format import format_of, image_suffix

EMPTY_MASK = "empty mask: nothing was found"
OUT_OF_DISTRIBUTION = "out of distribution: unlike the training images"


UNREADABLE = "not predicted: the file cannot be read"
NOT_FINITE = "not predicted: the network's output is not finite"
TOO_FEW_PIXELS = "too few pixels"
NOTE = "note: "
"""Begins a flag that informs and calls for nothing."""
SEPARATOR = "; "
REFER = "refer"


def severity_of(flags: Sequence[str]) -> str:
    """`refer` where an expert should see the case, `note` where flags only inform, else empty."""
    if any(not flag.startswith(NOTE) for flag in flags):
        return REFER
    return "note" if flags else ""


@dataclass(frozen=True, slots=True)
class CaseRow:
    """An image of a prediction folder; what does not apply is nan.

    Attributes:
        case: name of the outputs, with `/` between folders.
        file: the image, relative to the folder that was predicted.
        height: of the image, in pixels.
        width: of the image, in pixels.
        slices: of a volume; 1 for pictures.
        slice: index of the slice that the overlay shows.
        slice_mm: millimetres between slices; nan for pictures, and where a file has no spacing.
        row_mm: millimetres between rows.
        column_mm: millimetres between columns.
        marks: letters of the patient's sides at the left, right, top and bottom of a slice.
        group: what the image belongs to, such as a patient; its own name where nothing is known.
        foreground_fraction: fraction of the pixels that are not background.
        mean_confidence: over all pixels.
        confidence_p05: 5th percentile over all pixels.
        border_confidence: mean within 2% of the diagonal of the predicted border.
        patch_confidence: mean of the least sure of 8 x 8 patches.
        foreground_confidence: mean over the predicted foreground.
        shaded_fraction: fraction of the pixels that the overlay shades: wrong too often.
        expected_dice: 2 * sum(p * m) / (sum(p) + sum(m)) with the foreground probability p and the
            predicted foreground m, corrected as validation images reached it (see
            `calibration.dice_scale`); nan where both are empty.
        ood_score: distance from the training images, where the run has a detector.
        flags: in words, the main reason to refer the case first; further ones begin with `note: `.
        error: why the image was not predicted.
        image_sha256: of the file.
        mask_sha256: of the predicted class indices, one byte each, slice by slice, row by row.
    """

    case: str
    file: str
    height: int = 0
    width: int = 0
    slices: int = 1
    slice: int = 0
    slice_mm: float = math.nan
    row_mm: float = math.nan
    column_mm: float = math.nan
    marks: str = ""
    group: str = ""
    foreground_fraction: float = math.nan
    mean_confidence: float = math.nan
    confidence_p05: float = math.nan
    border_confidence: float = math.nan
    patch_confidence: float = math.nan
    foreground_confidence: float = math.nan
    shaded_fraction: float = math.nan
    expected_dice: float = math.nan
    ood_score: float = math.nan
    flags: tuple[str, ...] = ()
    error: str = ""
    image_sha256: str = ""
    mask_sha256: str = ""

    @property
    def is_volume(self) -> bool:
        """Whether its file can hold several slices."""
        return format_of(self.file).has_slices

    @property
    def severity(self) -> str:
        """What its flags call for, see `severity_of`; a column of `cases.csv`."""
        return severity_of(self.flags)

    @property
    def is_referred(self) -> bool:
        """Whether an expert should see the case."""
        return self.severity == REFER

    def to_json(self) -> str:
        """As it is kept beside the maps; nan is null."""
        return json.dumps(self.plain(), ensure_ascii=False, indent=1) + "\n"

    def plain(self) -> dict[str, object]:
        """Names and values that JSON knows, by column."""
        values = {**asdict(self), "severity": self.severity}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in ((name, values[name]) for name in COLUMNS)
        }


NUMBERS = tuple(field.name for field in fields(CaseRow) if field.type is float)


_FIRST = ("case", "group")
COLUMNS = (
    *_FIRST,
    *(
        name
        for field in fields(CaseRow)
        for name in (("severity", "flags") if field.name == "flags" else (field.name,))
        if name not in _FIRST
    ),
)


def read_row(path: Path, case: str) -> CaseRow:
    """The row of one case; rows of an earlier version have fewer columns.

    Raises:
        DataError: the file is damaged, or about another case than its name says.
    """
    way_out = "Remove it and predict the missing case again."
    row = read_dataclass(path, CaseRow, error=DataError, way_out=way_out)
    if row.case != case or not image_suffix(row.file):
        raise DataError(f"{path}: not the row of an image called {case}. {way_out}")
    if not 0 <= row.slice < max(row.slices, 1):
        raise DataError(f"{path}: slice {row.slice} of {row.slices}. {way_out}")
    return row


TABLE_HEAD = table_line(COLUMNS)
"""First line of `cases.csv`."""


def case_line(row: CaseRow) -> str:
    """A line of `cases.csv`: numbers with six digits, nothing where nothing applies."""
    values = row.plain()
    for name in NUMBERS:
        value = values[name]
        values[name] = "" if value is None else f"{value:.6f}"
    values["flags"] = SEPARATOR.join(row.flags)
    return table_line([values[name] for name in COLUMNS])
