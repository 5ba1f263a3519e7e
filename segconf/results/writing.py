"""Maps and row of one case on disk, each file complete or absent."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from segconf.conventions import FULL_SCALE
from segconf.errors import DataError
from segconf.files import replacing, write_text
from segconf.images.png import write_png
from segconf.images.types import Image
from segconf.images.writing import write_confidence, write_mask, write_volume_channels
from segconf.results.maps import Maps
from segconf.results.prediction_folder import VOLUME_SUFFIX, PredictionFolder
from segconf.results.rows import CaseRow


def write_maps(folder: PredictionFolder, row: CaseRow, image: Image, maps: Maps) -> None:
    """Write mask, confidence and, where they were kept, probabilities of a case."""
    if row.is_volume:
        _write_volume(folder, row, image, maps)
    else:
        write_png(folder.mask(row.case, volume=False), maps.mask[0])
        write_png(folder.confidence(row.case, volume=False), maps.levels[0])
    if maps.probabilities is not None:
        _write_probabilities(folder, row, image, maps.probabilities)


def write_row(folder: PredictionFolder, row: CaseRow) -> None:
    """Write the row of a case; last of all its files, because a case that has it is complete."""
    write_text(folder.row(row.case), row.to_json())


def write_failure(folder: PredictionFolder, row: CaseRow) -> None:
    """Write the row of an image that was not predicted, and remove results it had before."""
    prepare_folders(folder, row)
    for path in folder.outputs(row.case, volume=row.is_volume):
        path.unlink(missing_ok=True)
    write_row(folder, row)


def prepare_folders(folder: PredictionFolder, row: CaseRow) -> None:
    """Make the folders of a case."""
    try:
        for path in folder.outputs(row.case, volume=row.is_volume):
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be made ({error.strerror}). "
            "Choose a folder that you may write to."
        ) from error


def _write_volume(folder: PredictionFolder, row: CaseRow, image: Image, maps: Maps) -> None:
    shape = image.spatial_shape
    with _named_like(folder.mask(row.case, volume=True)) as path:
        write_mask(path, maps.mask.reshape(shape), like=image)
    confidence = (maps.levels / np.float32(FULL_SCALE)).astype(np.float32)
    with _named_like(folder.confidence(row.case, volume=True)) as path:
        write_confidence(path, confidence.reshape(shape), like=image)


def _write_probabilities(
    folder: PredictionFolder, row: CaseRow, image: Image, probabilities: np.ndarray
) -> None:
    """float16 (K, D, H, W) under the name that nnU-Net uses; for volumes also float32 NIfTI."""
    archive = folder.probabilities(row.case, ".npz")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with replacing(archive) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, probabilities=probabilities.astype(np.float16))
    if row.is_volume:
        with _named_like(folder.probabilities(row.case, VOLUME_SUFFIX)) as path:
            write_volume_channels(path, probabilities, like=image)


@contextmanager
def _named_like(path: Path) -> Iterator[Path]:
    """Like `replacing`, with the suffix by which nibabel knows what to write."""
    with replacing(path) as temporary:
        inner = temporary.with_name(temporary.name + VOLUME_SUFFIX)
        try:
            yield inner
            inner.replace(temporary)
        finally:
            inner.unlink(missing_ok=True)
