"""Mask and confidence levels of an image on its own grid, and their files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from segconf.confidence import FloatArray, probabilities_of, rows_confidence
from segconf.conventions import FULL_SCALE
from segconf.files import make_folder, write_text
from segconf.images.io import write_confidence, write_mask
from segconf.images.types import ByteArray, Image
from segconf.overlays.contours import Regions, empty_regions, fill_regions, shown_contours
from segconf.overlays.layers import Contour
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow

_VOLUME_AXES = 4
_BINARY = 2


LevelArray = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Band:
    """Logits (K, b, W) of the rows from `start` on."""

    start: int
    logits: FloatArray


@dataclass(slots=True)
class Maps:
    """What was predicted for one image, on its own grid.

    Attributes:
        mask: (D, H, W) class index; one slice for a picture.
        levels: (D, H, W) confidence, 0..65535.
        foreground: sum over the pixels of the probability that it is no background.
        overlap: the same sum over the predicted foreground.
        class_sums: (K,) sum over the pixels of the probability of each class.
        probabilities: (K, D, H, W) where they were asked for.
        contours: those whose regions are kept: of more than two classes, where the maps alone do
            not tell them.
        regions: (D, H, W) pixels inside of the contours, as `fill_regions` gives them.
    """

    mask: ByteArray
    levels: LevelArray
    foreground: float = 0.0
    overlap: float = 0.0
    class_sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    probabilities: FloatArray | None = None
    contours: tuple[Contour, ...] = ()
    regions: Regions | None = None

    @classmethod
    def empty(
        cls,
        shape: tuple[int, int, int],
        *,
        classes: int,
        probabilities: bool,
        contours: Sequence[Contour] = (),
    ) -> "Maps":
        """Room for an image of D slices of H x W."""
        room = np.empty((classes, *shape), np.float32) if probabilities else None
        maps = cls(
            np.empty(shape, np.uint8),
            np.empty(shape, np.uint16),
            class_sums=np.zeros(classes),
            probabilities=room,
        )
        if contours and classes > _BINARY:
            maps.contours = shown_contours(contours)
            maps.regions = empty_regions(shape, maps.contours)
        return maps

    @classmethod
    def of_grid(cls, logits: FloatArray) -> "Maps":
        """Mask and confidence (D, h, w) from logits (D, K, h, w) on the network's grid."""
        slices, classes, height, width = logits.shape
        maps = cls.empty((slices, height, width), classes=classes, probabilities=False)
        for index, one in enumerate(logits):
            maps.fill(index, [Band(0, np.ascontiguousarray(one))])
        return maps

    def fill(self, index: int, bands: Iterable[Band]) -> None:
        """Take the bands of slice `index`."""
        for band in bands:
            rows = slice(band.start, band.start + band.logits.shape[1])
            found = rows_confidence(band.logits)
            self.mask[index, rows] = found.mask
            self.foreground += found.foreground
            self.overlap += found.overlap
            self.class_sums += found.class_sums
            confidence = found.confidence
            confidence *= FULL_SCALE
            with np.errstate(invalid="ignore"):  # of NaN, which the sums above tell the caller
                self.levels[index, rows] = np.rint(confidence, out=confidence)
            if self.probabilities is not None:
                self.probabilities[:, index, rows] = probabilities_of(band.logits)
            if self.regions is not None:
                part = self.regions[index, rows]
                fill_regions(part, probabilities_of(band.logits), self.contours)


def with_slices(pixels: ByteArray) -> ByteArray:
    """(C, H, W) as one slice, (C, 1, H, W); a volume (C, D, H, W) as it is."""
    return pixels if pixels.ndim == _VOLUME_AXES else pixels[:, None]


def write_maps(folder: PredictionFolder, row: CaseRow, image: Image, maps: Maps) -> None:
    """Write mask, confidence and, where they were kept, probabilities of a case."""
    suffix, shape = folder.map_suffix(row), image.spatial_shape
    write_mask(folder.mask(row.case, suffix), maps.mask.reshape(shape), like=image)
    write_confidence(folder.confidence(row.case, suffix), maps.levels.reshape(shape), like=image)
    if maps.probabilities is not None:
        make_folder(folder.probabilities(row.case, 0, suffix).parent)
        for number, values in enumerate(maps.probabilities):
            path = folder.probabilities(row.case, number, suffix)
            write_confidence(path, values.reshape(shape), like=image)


def write_row(folder: PredictionFolder, row: CaseRow) -> None:
    """Write the row of a case; last of all its files, because a case that has it is complete."""
    write_text(folder.row(row.case), row.to_json())


def write_failure(folder: PredictionFolder, row: CaseRow) -> None:
    """Write the row of an image that was not predicted, and remove results it had before."""
    prepare_folders(folder, row)
    for path in folder.outputs(row.case, folder.map_suffix(row)):
        path.unlink(missing_ok=True)
    write_row(folder, row)


def prepare_folders(folder: PredictionFolder, row: CaseRow) -> None:
    """Make the folders of a case."""
    for path in folder.outputs(row.case, folder.map_suffix(row)):
        make_folder(path.parent)
