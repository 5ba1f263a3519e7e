"""Structures: size, confidence and parts of every class that was found, and `structures.csv`."""

import math
from dataclasses import asdict, dataclass, fields, replace

import cv2
import numpy as np

from segconf.csv_tables import read_table, table_line, table_text
from segconf.errors import DataError
from segconf.files import write_text
from segconf.images.types import ByteArray, Image
from segconf.metrics.overlap import expected_dice
from segconf.results.maps import Maps
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.results.summary import border_confidence, foreground_confidence

_BINARY = 2


@dataclass(frozen=True, slots=True)
class Structure:
    """A class of a prediction other than the background; nan where a number is not defined.

    Attributes:
        case: name of the case.
        class_index: of the class, from 1.
        pixels: with this class, in all slices.
        area_mm2: of them in square millimetres, for a single slice whose spacing is known.
        volume_mm3: of them in cubic millimetres, for several slices whose spacing is known.
        components: connected parts; pixels that touch at a corner are connected.
        mean_confidence: over its pixels.
        border_confidence: mean within 2% of the diagonal of its border.
        expected_dice: that of the case, where there is one class beside the background; of several
            classes 2 * sum(p * m) / (sum(p) + sum(m)) with its probability p and its pixels m, not
            corrected; nan where both are empty.
    """

    case: str
    class_index: int
    pixels: int
    area_mm2: float
    volume_mm3: float
    components: int
    mean_confidence: float
    border_confidence: float
    expected_dice: float


COLUMNS = tuple(field.name for field in fields(Structure))
NUMBERS = tuple(field.name for field in fields(Structure) if field.type is float)


def with_geometry(row: CaseRow, image: Image) -> CaseRow:
    """The row with the spacing and the sides of the patient, where the file says them."""
    if image.spacing is not None:
        row = replace(row, row_mm=image.spacing[-2], column_mm=image.spacing[-1])
        if len(image.spacing) > 2:  # noqa: PLR2004 - a volume
            row = replace(row, slice_mm=image.spacing[0])
    marks = image.orientation.marks if image.orientation is not None else None
    return replace(row, marks="".join(marks or ()))


def find_structures(row: CaseRow, maps: Maps) -> list[Structure]:
    """Every class but the background of a case whose row has its geometry."""
    return [_structure(row, maps, index) for index in range(1, len(maps.class_sums))]


def _structure(row: CaseRow, maps: Maps, index: int) -> Structure:
    found: ByteArray = (maps.mask == index).view(np.uint8)  # (D, H, W)
    pixels = int(np.count_nonzero(found))
    area = row.row_mm * row.column_mm
    confidence, border, dice = _agreement(row, maps, index, found)
    return Structure(
        case=row.case,
        class_index=index,
        pixels=pixels,
        area_mm2=pixels * area if len(found) == 1 else math.nan,
        volume_mm3=pixels * area * row.slice_mm if len(found) > 1 else math.nan,
        components=count_components(found),
        mean_confidence=confidence,
        border_confidence=border,
        expected_dice=dice,
    )


def _agreement(
    row: CaseRow, maps: Maps, index: int, found: ByteArray
) -> tuple[float, float, float]:
    """Mean confidence, confidence along the border, and expected Dice of a class."""
    if len(maps.class_sums) == _BINARY:  # the one structure is the foreground
        return row.foreground_confidence, row.border_confidence, row.expected_dice
    confidence = foreground_confidence(found, maps.levels)
    pixels = int(np.count_nonzero(found))
    shared = confidence * pixels if pixels else 0.0
    return (
        confidence,
        border_confidence(found, maps.levels),
        expected_dice(shared, float(maps.class_sums[index]), pixels),
    )


def count_components(found: ByteArray) -> int:
    """Connected parts of a mask (D, H, W) of zeros and ones, corners included."""
    used = [np.flatnonzero(found.any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1))]
    if len(used[0]) == 0:
        return 0
    found = found[tuple(slice(places[0], places[-1] + 1) for places in used)]
    if len(found) == 1:
        plane = np.ascontiguousarray(found[0])
        return int(cv2.connectedComponents(plane, connectivity=8)[0]) - 1
    from scipy import ndimage  # slow to import, and only volumes need it

    _, count = ndimage.label(found, structure=np.ones((3, 3, 3)))
    return int(count)


def write_structures(folder: PredictionFolder, row: CaseRow, maps: Maps) -> None:
    """Write the structures of a case, a table of its own until `structure_lines`."""
    lines = []
    for structure in find_structures(row, maps):
        values = asdict(structure)
        for name in NUMBERS:
            values[name] = "" if math.isnan(values[name]) else f"{values[name]:.6f}"
        lines.append([values[name] for name in COLUMNS])
    write_text(folder.structures(row.case), table_text(COLUMNS, lines))


def is_complete(folder: PredictionFolder, case: str, image_sha256: str) -> bool:
    """Whether a case has all its files, made from an image of this content, and their tables."""
    if not folder.is_complete(case, image_sha256):
        return False
    try:
        read_table(folder.structures(case), COLUMNS, error=DataError, way_out="")
    except DataError:
        return False
    return True


STRUCTURES_HEAD = table_line(COLUMNS)
"""First line of `structures.csv`."""


def structure_lines(folder: PredictionFolder, row: CaseRow) -> list[str]:
    """Lines of `structures.csv` for a case, one per class: six digits, or nothing.

    A case that was predicted by an earlier version has none.
    """
    path = folder.structures(row.case)
    if row.error or not path.exists():
        return []
    way_out = "Remove it and predict the case again."
    found = read_table(path, COLUMNS, error=DataError, way_out=way_out)
    return [table_line([row.case, *(line[name] for name in COLUMNS[1:])]) for line in found]
