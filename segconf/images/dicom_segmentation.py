"""DICOM segmentation objects (SEG) as masks: the number of a segment is the class index."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.dicom_files import MASK_CLASSES, known_series
from segconf.images.dicom_geometry import Plane, order_slices
from segconf.images.dicom_pixels import decoded
from segconf.images.dicom_stack import frame_groups, frame_planes, open_stack
from segconf.images.orientation import Affine, Orientation
from segconf.images.types import Header

_SAME_PLACE = 0.1
_MOST_SEGMENTS = 255


def is_segmentation(dataset: Any) -> bool:
    """Whether a file is a segmentation object."""
    return str(dataset.get("SOPClassUID", "")) in MASK_CLASSES


@dataclass(frozen=True, slots=True)
class Segmentation:
    """A segmentation object: the slice and the segment of every frame.

    Attributes:
        path: of the object.
        size: height and width of its frames.
        slices: number of slices of the grid.
        places: slice of every frame.
        segments: segment of every frame; None in a label map, whose pixels are segments.
        affine: of the stored grid (column, row, slice); None for pictures.
        orientation: of the stored grid; None for pictures.
    """

    path: Path
    size: tuple[int, int]
    slices: int
    places: tuple[int, ...]
    segments: tuple[int, ...] | None
    affine: Affine | None
    orientation: Orientation | None

    @property
    def _stored_shape(self) -> tuple[int, int, int]:
        return self.size[1], self.size[0], self.slices

    def header(self) -> Header:
        """Size, slices and place of the mask."""
        if self.affine is None or self.orientation is None:
            return Header(self.size, self.slices, 1)
        slices, height, width = self.orientation.shape(self._stored_shape)
        affine = self.orientation.pixel_affine(self.affine, self._stored_shape)
        return Header((height, width), slices, 1, affine, self.orientation)

    def labels(self, dataset: Any, slice_index: int | None) -> NDArray[Any]:
        """Class indices (H, W) or (D, H, W); where segments overlap it is refused."""
        frames = decoded(dataset, self.path).reshape(-1, *self.size)  # (N, H, W)
        stored = np.zeros((self.slices, *self.size), np.uint8)
        for number, (frame, place) in enumerate(zip(frames, self.places, strict=True)):
            if self.segments is None:
                if frame.max() > _MOST_SEGMENTS:
                    raise DataError(
                        f"{self.path}: a label map with the segment {frame.max()}; masks hold "
                        f"numbers up to {_MOST_SEGMENTS}. Give one with fewer segments."
                    )
                stored[place] = frame
                continue
            found = frame > 0
            if (stored[place] > 0)[found].any():
                raise DataError(
                    f"{self.path}: segments overlap, so that a pixel has several classes. "
                    "Give a mask with one class for every pixel."
                )
            stored[place][found] = self.segments[number]
        if self.orientation is not None:
            stored = self.orientation.pixels(stored.transpose(2, 1, 0))
        if slice_index is not None:
            single: NDArray[Any] = stored[slice_index]
            return single
        return stored[0] if len(stored) == 1 else stored


def open_segmentation(dataset: Any, path: Path) -> Segmentation:
    """Where the frames of a segmentation object lie.

    A SEG may leave out empty slices. Where its source series is among the images at hand, its grid
    is that of the series; else it is that of the frames.

    Raises:
        DataError: the object is fractional, or frames do not lie on its grid.
    """
    if str(dataset.get("SegmentationType", "")) == "FRACTIONAL":
        raise DataError(
            f"{path}: a fractional segmentation holds probabilities. Give a binary one."
        )
    size = int(dataset.Rows), int(dataset.Columns)
    is_label_map = str(dataset.SOPClassUID) == MASK_CLASSES[1]
    groups = frame_groups(dataset)
    segments = None if is_label_map else tuple(_segment(group, path) for group in groups)
    planes = frame_planes(dataset, path)
    if planes is None:  # of a picture, which lies nowhere
        return Segmentation(path, size, 1, (0,) * max(1, len(groups)), segments, None, None)
    grid, affine = _grid(dataset, planes, path)
    positions = np.array([plane.position for plane in grid])
    places = []
    for plane in planes:
        apart = np.linalg.norm(positions - plane.position, axis=1)
        if apart.min() > _SAME_PLACE * max(plane.spacing):
            raise DataError(f"{path}: lies elsewhere than its source series. Give its own mask.")
        places.append(int(apart.argmin()))
    orientation = Orientation.of(affine, (size[1], size[0], len(grid)))
    return Segmentation(path, size, len(grid), tuple(places), segments, affine, orientation)


def _grid(dataset: Any, planes: list[Plane], path: Path) -> tuple[list[Plane], Affine]:
    """Slices in order and their affine: of the source series, else of the frames themselves."""
    for reference in dataset.get("ReferencedSeriesSequence") or []:
        source = known_series(str(reference.get("SeriesInstanceUID", "")))
        if source is not None:
            stack = open_stack(source)
            return [one.plane for one in stack.slices], stack.stored_affine
    distinct: list[Plane] = []
    for plane in planes:
        if not any(np.allclose(plane.position, one.position, atol=1e-3) for one in distinct):
            distinct.append(plane)
    order, affine = order_slices(distinct, path)
    return [distinct[number] for number in order], affine


def _segment(group: Any, path: Path) -> int:
    try:
        return int(group.get("SegmentIdentificationSequence")[0].ReferencedSegmentNumber)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path}: a frame does not say which segment it shows.") from error
