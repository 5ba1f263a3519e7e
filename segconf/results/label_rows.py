"""Rows of `predictions.csv`: the label of an image, its confidence, and all probabilities."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from segconf.calibration.stored import Calibration
from segconf.csv_tables import number_in, read_table, table_text
from segconf.errors import DataError
from segconf.results.rows import NOTE, OUT_OF_DISTRIBUTION, REFER, SEPARATOR, severity_of

TABLE = "predictions.csv"
PROBABILITY = "p_"
"""Before the name of a class, the column of its probability."""
LOW_CONFIDENCE = "low confidence"
_FIRST = ("case", "label", "confidence")
_LAST = ("flags", "ood_score", "group", "file", "height", "width", "image_sha256", "error")


@dataclass(frozen=True, slots=True)
class LabelRow:
    """What is predicted for an image.

    Attributes:
        case: name of the image.
        file: below the folder that was predicted.
        group: what the image belongs to, such as a patient.
        label: name of the class; empty where the image could not be predicted.
        probabilities: of all classes, after the calibration.
        flags: the main reason to refer the image to an expert, if there is one, then notes.
        ood_score: distance from the training images; nan where the run has no detector.
        height: of the image, in pixels; 0 for the row of a table.
        width: of the image, in pixels.
        image_sha256: of the content of the file.
        error: why it could not be predicted; empty otherwise.
    """

    case: str
    file: str
    group: str
    label: str = ""
    probabilities: tuple[float, ...] = ()
    flags: tuple[str, ...] = ()
    ood_score: float = math.nan
    height: int = 0
    width: int = 0
    image_sha256: str = ""
    error: str = ""

    @property
    def confidence(self) -> float | None:
        """Probability of the label; None without one."""
        return max(self.probabilities, default=None)

    @property
    def is_referred(self) -> bool:
        """Whether an expert should see the image."""
        return severity_of(self.flags) == REFER

    def plain(self) -> dict[str, object]:
        """Names and values that JSON knows."""
        distance = None if math.isnan(self.ood_score) else self.ood_score
        further = {"confidence": self.confidence, "severity": severity_of(self.flags)}
        return {**asdict(self), **further, "ood_score": distance}


def with_label_flags(row: LabelRow, calibration: Calibration, ood_limit: float | None) -> LabelRow:
    """The row with its flags: an image is referred for the first reason, others become notes.

    Args:
        row: with its label.
        calibration: of the model; one without a rule refers no image for its confidence.
        ood_limit: out-of-distribution score above which an image is referred, if there is a
            detector.
    """
    reasons = []
    if ood_limit is not None and row.ood_score > ood_limit:
        reasons.append(OUT_OF_DISTRIBUTION)
    rule = calibration.label_referral
    if rule is not None and row.confidence is not None and row.confidence < rule.threshold:
        reasons.append(LOW_CONFIDENCE)
    return replace(row, flags=(*reasons[:1], *(NOTE + words for words in reasons[1:])))


def label_table(rows: Iterable[LabelRow], class_names: Sequence[str]) -> str:
    """`predictions.csv`: a line per image in the order of their names."""
    columns = [*_FIRST, *(PROBABILITY + name for name in class_names), *_LAST]
    return table_text(columns, [_cells(row, class_names) for row in sorted(rows, key=_name)])


def _name(row: LabelRow) -> str:
    return row.case


def _cells(row: LabelRow, class_names: Sequence[str]) -> list[object]:
    known = [f"{value:.6f}" for value in row.probabilities] or [""] * len(class_names)
    confidence = "" if row.confidence is None else f"{row.confidence:.6f}"
    flags = SEPARATOR.join(row.flags)
    distance = "" if math.isnan(row.ood_score) else f"{row.ood_score:.6g}"
    sides = [row.height or "", row.width or ""]
    last = [flags, distance, row.group, row.file, *sides, row.image_sha256, row.error]
    return [row.case, row.label, confidence, *known, *last]


def read_label_table(path: Path, class_names: Sequence[str]) -> dict[str, LabelRow]:
    """Rows by case; none where there is no such file.

    Raises:
        DataError: the file is damaged, or of other classes.
    """
    if not path.is_file():
        return {}
    columns = [*_FIRST, *(PROBABILITY + name for name in class_names), *_LAST]
    way_out = "Remove it and predict again."
    try:
        rows = read_table(path, columns, error=DataError, way_out=way_out)
        return {row["case"]: _row(row, class_names) for row in rows}
    except ValueError as error:
        raise DataError(f"{path}: {error}. {way_out}") from error


def _row(cells: Mapping[str, str], class_names: Sequence[str]) -> LabelRow:
    numbers = () if cells["error"] else [number_in(cells, PROBABILITY + n) for n in class_names]
    flags = cells["flags"]
    return LabelRow(
        case=cells["case"],
        file=cells["file"],
        group=cells["group"],
        label=cells["label"],
        probabilities=tuple(numbers),
        flags=tuple(flags.split(SEPARATOR)) if flags else (),
        ood_score=number_in(cells, "ood_score") if cells["ood_score"] else math.nan,
        height=int(cells["height"] or 0),
        width=int(cells["width"] or 0),
        image_sha256=cells["image_sha256"],
        error=cells["error"],
    )
