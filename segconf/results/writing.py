"""Maps and row of one case on disk, each file complete or absent."""

import numpy as np

from segconf.errors import DataError
from segconf.files import replacing, write_text
from segconf.images.image_format import format_of
from segconf.images.io import write_confidence, write_mask, write_probabilities
from segconf.images.types import Image
from segconf.results.maps import Maps
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow


def write_maps(folder: PredictionFolder, row: CaseRow, image: Image, maps: Maps) -> None:
    """Write mask, confidence and, where they were kept, probabilities of a case."""
    suffix, shape = row.map_suffix, image.spatial_shape
    write_mask(folder.mask(row.case, suffix), maps.mask.reshape(shape), like=image)
    write_confidence(folder.confidence(row.case, suffix), maps.levels.reshape(shape), like=image)
    if maps.probabilities is not None:
        _write_probabilities(folder, row, image, maps.probabilities)


def write_row(folder: PredictionFolder, row: CaseRow) -> None:
    """Write the row of a case; last of all its files, because a case that has it is complete."""
    write_text(folder.row(row.case), row.to_json())


def write_failure(folder: PredictionFolder, row: CaseRow) -> None:
    """Write the row of an image that was not predicted, and remove results it had before."""
    prepare_folders(folder, row)
    for path in folder.outputs(row.case, row.map_suffix):
        path.unlink(missing_ok=True)
    write_row(folder, row)


def prepare_folders(folder: PredictionFolder, row: CaseRow) -> None:
    """Make the folders of a case."""
    try:
        for path in folder.outputs(row.case, row.map_suffix):
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{error.filename}: cannot be made ({error.strerror}). "
            "Choose a folder that you may write to."
        ) from error


def _write_probabilities(
    folder: PredictionFolder, row: CaseRow, image: Image, probabilities: np.ndarray
) -> None:
    """float16 (K, D, H, W) under the name that nnU-Net uses; for volumes also as float32 maps."""
    archive = folder.probabilities(row.case, ".npz")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with replacing(archive) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, probabilities=probabilities.astype(np.float16))
    path = folder.probabilities(row.case, row.map_suffix)
    if format_of(path).stores_probabilities:
        write_probabilities(path, probabilities, like=image)
