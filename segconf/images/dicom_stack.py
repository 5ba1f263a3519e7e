"""A DICOM volume: slices of a series, or frames of one file, in the order of their places."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.dicom_files import files_of, open_dicom
from segconf.images.dicom_geometry import Plane, order_slices
from segconf.images.dicom_pixels import (
    check_grey,
    check_image,
    decoded,
    header_window,
    intensities,
    is_colour,
)
from segconf.images.orientation import Affine, Orientation
from segconf.images.types import Size, Window
from segconf.images.volumes import percentile_window


@dataclass(frozen=True, slots=True)
class StackSlice:
    """A slice: its file, and its frame in it with the functional groups that hold for it."""

    file: Path
    frame: int | None
    groups: Any
    plane: Plane
    window: Window | None


@dataclass(frozen=True, slots=True)
class Stack:
    """An opened volume whose pixels are not decoded yet; slices in the order of their places."""

    path: Path
    slices: tuple[StackSlice, ...]
    stored_size: Size
    stored_affine: Affine
    orientation: Orientation
    inverted: bool
    modality: str

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Columns, rows and slices."""
        return self.stored_size[1], self.stored_size[0], len(self.slices)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Slices, rows and columns of the pixels."""
        return self.orientation.shape(self.stored_shape)

    @property
    def affine(self) -> Affine:
        """Of the pixels, from (column, row, slice) to millimetres in RAS+."""
        return self.orientation.pixel_affine(self.stored_affine, self.stored_shape)

    def window(self) -> Window:
        """That of the header where all slices agree, else the percentiles of the volume."""
        given = {one.window for one in self.slices}
        common = given.pop() if len(given) == 1 else None
        if common is not None:
            return common
        stamps = tuple((one.file, one.file.stat().st_mtime_ns) for one in self.slices)
        return _percentiles(self.path, stamps)

    def read(self, slice_index: int | None) -> NDArray[Any]:
        """Intensities (1, D, H, W) of one slice or of all, in the units of the modality."""
        if slice_index is None:
            return self.orientation.pixels(self._voxels(self.slices))[None]
        if not 0 <= slice_index < self.shape[0]:
            raise DataError(
                f"{self.path}: slice {slice_index} was asked for, the series has {self.shape[0]} "
                "(counted from 0). An image and its mask must have the same number of slices."
            )
        part = self.orientation.stored_index(slice_index, self.stored_shape)
        voxels = self._voxels(self.slices[part[2]])[part[0], part[1]]
        return self.orientation.pixels(voxels)[None]

    def _voxels(self, slices: tuple[StackSlice, ...]) -> NDArray[Any]:
        """(column, row, slice) of some slices."""
        planes = []
        files: dict[Path, list[StackSlice]] = {}
        for one in slices:
            files.setdefault(one.file, []).append(one)
        for file, own in files.items():
            with open_dicom(file, shown=self.path) as dataset:
                check_image(dataset, self.path)
                for one in own:
                    values = decoded(dataset, self.path, index=one.frame)
                    group = _first(one.groups, "PixelValueTransformationSequence")
                    planes.append(intensities(dataset, values, group))
        if any(plane.shape != self.stored_size for plane in planes):
            raise DataError(f"{self.path}: a slice has another size than its header says.")
        return np.stack(planes).transpose(2, 1, 0)


@lru_cache(maxsize=256)
def _percentiles(path: Path, _stamps: tuple[tuple[Path, int], ...]) -> Window:
    """Remembered, so that the slices of a series do not each read all of it."""
    return percentile_window(open_stack(path).read(None))


def open_stack(path: Path) -> Stack:
    """A volume by its path.

    Raises:
        DataError: a file is broken, or the slices are no volume.
    """
    slices: list[StackSlice] = []
    sizes: set[Size] = set()
    meanings: set[str] = set()
    modality = ""
    for file in files_of(path):
        with open_dicom(file, shown=path) as dataset:
            check_image(dataset, path)
            if is_colour(dataset):
                raise DataError(
                    f"{path}: slices or frames in colour are no volume. Save each as a picture."
                )
            check_grey(dataset, path)
            sizes.add((int(dataset.Rows), int(dataset.Columns)))
            meanings.add(str(dataset.PhotometricInterpretation))
            modality = str(dataset.get("Modality", "") or "")
            slices += _slices(file, dataset, path)
    if len(sizes) > 1 or len(meanings) > 1:
        raise DataError(f"{path}: slices of several sizes or kinds. Give each as its own series.")
    order, affine = order_slices([one.plane for one in slices], path)
    size = sizes.pop()
    orientation = Orientation.of(affine, (size[1], size[0], len(slices)))
    ordered = tuple(slices[number] for number in order)
    inverted = "MONOCHROME1" in meanings
    return Stack(path, ordered, size, affine, orientation, inverted, modality)


def _slices(file: Path, dataset: Any, shown: Path) -> Iterator[StackSlice]:
    """The slice of a file, or its frames."""
    frames = int(dataset.get("NumberOfFrames") or 1)
    groups = dataset.get("PerFrameFunctionalGroupsSequence")
    if not groups:
        if frames > 1:
            raise DataError(
                f"{shown}: holds {frames} frames that do not say where they lie, so they are no "
                "volume. Save each as a picture."
            )
        plane = Plane.of(
            dataset.get("ImagePositionPatient"),
            dataset.get("ImageOrientationPatient"),
            dataset.get("PixelSpacing"),
            shown,
        )
        yield StackSlice(file, None, None, plane, header_window(dataset, shown))
        return
    if len(groups) != frames:
        raise DataError(f"{shown}: {frames} frames, but places of {len(groups)}. Export it again.")
    for number, both in enumerate(frame_groups(dataset)):
        levels = _first(both, "FrameVOILUTSequence")
        window = None if levels is None else header_window(levels, shown)
        yield StackSlice(file, number, both, _frame_plane(both, shown), window)


def frame_planes(dataset: Any, shown: Path) -> list[Plane] | None:
    """Where the frames of an object lie; None where they have no place in a patient."""
    groups = frame_groups(dataset)
    if all(_first(both, "PlanePositionSequence") is None for both in groups):
        return None
    return [_frame_plane(both, shown) for both in groups]


def _frame_plane(both: "_Groups", shown: Path) -> Plane:
    measures = _first(both, "PixelMeasuresSequence")
    position = _first(both, "PlanePositionSequence")
    orientation = _first(both, "PlaneOrientationSequence")
    return Plane.of(
        None if position is None else position.get("ImagePositionPatient"),
        None if orientation is None else orientation.get("ImageOrientationPatient"),
        None if measures is None else measures.get("PixelSpacing"),
        shown,
    )


def frame_groups(dataset: Any) -> "list[_Groups]":
    """Functional groups of every frame, with those that all share."""
    shared = _item(dataset.get("SharedFunctionalGroupsSequence"))
    return [_Groups(own, shared) for own in dataset.get("PerFrameFunctionalGroupsSequence") or []]


@dataclass(frozen=True, slots=True)
class _Groups:
    """Functional groups of a frame, and those that all frames share."""

    own: Any
    shared: Any

    def get(self, name: str) -> Any:
        """A sequence of the frame, else of all frames."""
        found = self.own.get(name)
        return found if found or self.shared is None else self.shared.get(name)


def _first(groups: Any, name: str) -> Any:
    return None if groups is None else _item(groups.get(name))


def _item(sequence: Any) -> Any:
    return sequence[0] if sequence else None
