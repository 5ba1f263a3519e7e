"""Corrected masks of a prediction folder, and what a review accepted or corrected.

`corrected/<case>.png` (`.nii.gz` for volumes) holds the class index of every pixel on the grid of
the image; `corrected/<case>.json` beside it says what it corrects, and is written last. Of a volume
one slice was corrected; the others are as they were predicted.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from segconf.config.records import read_dataclass
from segconf.data.decisions import CORRECTED, LABELED, decisions_file, read_decision_rows
from segconf.errors import DataError
from segconf.files import make_folder, write_text
from segconf.images.image_format import format_of, image_suffix, map_file
from segconf.images.io import read_image, write_mask
from segconf.images.masks import read_mask
from segconf.images.types import ByteArray

FORMAT = "segconf correction 1"


@dataclass(frozen=True, slots=True)
class CorrectionRecord:
    """What a corrected mask belongs to.

    Attributes:
        case: name of the results, with `/` between folders.
        file: the image, relative to the folder that was predicted.
        slice: the one that was corrected; None for a picture.
        classes: number of classes.
        corrected_at: time in ISO 8601.
        model_sha256: of the weights that predicted the mask.
        image_sha256: of the file of the image.
        mask_sha256: of the class indices that were predicted.
    """

    case: str
    file: str
    slice: int | None
    classes: int
    corrected_at: str
    model_sha256: str
    image_sha256: str
    mask_sha256: str
    format: str = FORMAT


@dataclass(frozen=True, slots=True)
class ReviewedCase:
    """A case whose mask or label a reader accepted or corrected.

    Attributes:
        case: name of the results, with `/` between folders.
        path: file of the mask; None where labels were predicted.
        corrected: whether it was corrected, not accepted as it was.
        slice: of a volume, the slice that was corrected; None if the whole mask counts.
        image_sha256: of the file of the image that was predicted; empty where it is not known.
        label: name of the class; empty where masks were predicted.
    """

    case: str
    path: Path | None
    corrected: bool
    slice: int | None
    image_sha256: str
    label: str = ""


def corrected_file(maps: Path, case: str, suffix: str) -> Path:
    """The corrected mask of a case (`.png`, `.nii.gz`), or its record (`.json`).

    Raises:
        DataError: the name, or a link, leads out of the folder.
    """
    path = maps / "corrected" / f"{case}{suffix}"
    if not path.resolve().is_relative_to(maps.resolve()):
        raise DataError(f"{path}: lies outside of {maps}. Rename the case, or remove the link.")
    return path


def write_correction(maps: Path, record: CorrectionRecord, mask: ByteArray) -> Path:
    """Write a corrected mask (H, W), of a volume as one slice of the prediction, and its record.

    Returns:
        File of the mask.
    """
    suffix = format_of(record.file).map_suffix
    path = corrected_file(maps, record.case, suffix)
    make_folder(path.parent)
    if format_of(path).has_slices:
        predicted = maps / "masks" / f"{record.case}{suffix}"
        whole = read_mask(predicted, classes=record.classes)
        if record.slice is None:
            whole = mask
        else:
            whole[record.slice] = mask
        write_mask(path, whole, like=read_image(predicted, channels=1))
    else:
        write_mask(path, mask)
    text = json.dumps(asdict(record), ensure_ascii=False, indent=1) + "\n"
    write_text(corrected_file(maps, record.case, ".json"), text)
    return path


def remove_correction(maps: Path, record: CorrectionRecord) -> None:
    """Go back to the predicted mask."""
    corrected_file(maps, record.case, ".json").unlink(missing_ok=True)
    suffix = format_of(record.file).map_suffix
    corrected_file(maps, record.case, suffix).unlink(missing_ok=True)


def read_correction(maps: Path, case: str) -> CorrectionRecord | None:
    """Record of the corrected mask of a case, if it has one.

    Raises:
        DataError: the record cannot be read, or its mask is gone.
    """
    path = corrected_file(maps, case, ".json")
    if not path.exists():
        return None
    way_out = "Correct the case again."
    record = read_dataclass(path, CorrectionRecord, error=DataError, way_out=way_out)
    if record.format != FORMAT or record.case != case or not image_suffix(record.file):
        raise DataError(f'{path}: expected "format": "{FORMAT}" and "case": "{case}". {way_out}')
    mask = corrected_file(maps, case, format_of(record.file).map_suffix)
    if not mask.is_file():
        raise DataError(f"{mask}: the corrected mask is gone. Correct the case again.")
    return record


def read_corrected_slice(maps: Path, record: CorrectionRecord) -> ByteArray:
    """The corrected mask (H, W); of a volume the slice that was corrected."""
    path = corrected_file(maps, record.case, format_of(record.file).map_suffix)
    mask = read_mask(path, classes=max(record.classes, 2))
    return mask if record.slice is None else mask[record.slice]


def reviewed_cases(maps: Path) -> list[ReviewedCase]:
    """Cases of a prediction folder whose mask or label was accepted or corrected.

    Raises:
        DataError: there are no decisions, or a mask is gone.
    """
    reviewed: list[ReviewedCase] = []
    for row in read_decision_rows(decisions_file(maps)):
        is_corrected = row.decision == CORRECTED
        if row.label and row.decision in LABELED:
            found = ReviewedCase(row.case, None, is_corrected, None, row.image_sha256, row.label)
        elif is_corrected:
            record = read_correction(maps, row.case)
            if record is None:
                raise DataError(
                    f"{maps}: {row.case} was corrected, but there is no "
                    f"{corrected_file(maps, row.case, '.json')}. Correct the case again."
                )
            path = corrected_file(maps, row.case, format_of(record.file).map_suffix)
            found = ReviewedCase(row.case, path, is_corrected, record.slice, record.image_sha256)
        elif row.decision == "accept":
            path = map_file(maps / "masks", row.case, row.file)
            if not path.is_file():
                raise DataError(f"{path}: the accepted mask of {row.case} is gone. Predict again.")
            found = ReviewedCase(row.case, path, is_corrected, None, row.image_sha256)
        else:
            continue
        reviewed.append(found)
    return reviewed
