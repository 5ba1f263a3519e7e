"""NIfTI files, read and written with nibabel: slices and volumes with their geometry.

Voxels are read in the one orientation that `segconf.images.orientation` describes, and written in
that of the file, so that reading and writing are each other's inverse for every affine. A file that
does not say how the patient lay (both form codes are 0, or the affine has no inverse) is read as it
is stored: voxel (i, j, k) of channel c is pixel ``[c, k, j, i]``.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from nibabel.filebasedimages import ImageFileError
from nibabel.spatialimages import HeaderDataError
from numpy.typing import NDArray

from segconf.conventions import FULL_SCALE
from segconf.errors import DataError
from segconf.files import check_regular
from segconf.images.image_format import ImageFormat, register
from segconf.images.nifti_grid import millimetres_per_unit, on_grid
from segconf.images.orientation import Affine, Orientation, affine_of, spacing_of
from segconf.images.resizing import resize_pixels
from segconf.images.types import (
    Header,
    Image,
    ReadOptions,
    Size,
    Window,
    check_ceiling,
    describe_os_error,
    reason,
)
from segconf.images.volumes import percentile_window, to_bytes, with_channels

_BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError),
    *(AttributeError, zlib.error, ImageFileError, HeaderDataError),
)
_VOLUME_AXES = 3
# The largest float32 of which 65535 are not more than 1.
_LEVEL = float(np.nextafter(np.float32(1 / FULL_SCALE), np.float32(0)))


@register
class Nifti(ImageFormat):
    """Slices and volumes (2, 3 or 4 axes, channels last), NIfTI-1 and NIfTI-2."""

    name = "nifti"
    suffixes = frozenset({".nii", ".nii.gz"})
    map_suffix = ".nii.gz"
    has_slices = True
    stores_probabilities = True

    def read_header(self, path: Path) -> Header:
        """Size, slices and channels, without reading voxels."""
        with open_volume(path) as volume:
            return Header(
                size=volume.size,
                slices=volume.slices,
                channels=volume.shape[3],
                affine=volume.affine,
                orientation=volume.orientation,
            )

    def read_image(self, path: Path, options: ReadOptions) -> Image:
        """Intensities of the window as 0..255; by default of the percentiles 0.5 and 99.5."""
        slice_index, size = options.slice_index, options.size
        with open_volume(path) as volume:
            check_ceiling(path, volume.size, volume.slices, options.max_pixels)
            voxels = volume.read(slice_index)  # (C, D, H, W)
            _refuse_without_numbers(path, volume, voxels)
            if volume.is_colour and options.window is None:
                pixels = voxels.astype(np.uint8)
            elif options.window is not None:
                pixels = to_bytes(voxels, [options.window] * len(voxels))
            else:
                pixels = to_bytes(voxels, _windows(volume, slice_index, voxels))
            pixels = with_channels(path, pixels, options.channels, is_colour=volume.is_colour)
            header = volume.file.header.copy()
            affine = affine_of(volume.affine, volume.size, slice_index=slice_index, size=size)
            if size is not None:
                pixels = resize_pixels(pixels, size)
        if pixels.shape[1] == 1:
            pixels = pixels[:, 0]  # (C, H, W)
        return Image(
            pixels=np.ascontiguousarray(pixels),
            path=path,
            affine=affine,
            spacing=spacing_of(affine, pixels.ndim - 1),
            orientation=volume.orientation,
            header=header,
        )

    def remarks(self, path: Path, channels: int) -> tuple[str, ...]:  # noqa: ARG002 - any number
        """Whether left and right are known."""
        with open_volume(path) as volume:
            known = volume.orientation.directions
        return () if known else ("the file does not say how the patient lay: slices are as stored",)

    def read_labels(self, path: Path, slice_index: int | None) -> NDArray[Any]:
        """Stored values of one channel."""
        with open_volume(path) as volume:
            if volume.shape[3] != 1:
                raise DataError(
                    f"{path}: the mask has {volume.shape[3]} channels. "
                    "Save one channel with the class index of every voxel."
                )
            labels = volume.read(slice_index)[0]  # (D, H, W)
        single: NDArray[Any] = labels[0]
        return single if len(labels) == 1 else labels

    def read_confidence(self, path: Path) -> NDArray[np.float32]:
        """One channel of values 0..1."""
        with open_volume(path) as volume:
            values = volume.read(None)  # (C, D, H, W)
        if len(values) != 1 or not ((values >= 0) & (values <= 1)).all():
            raise DataError(
                f"{path}: {len(values)} channels between {values.min():g} and {values.max():g}. "
                "A confidence map has one channel between 0 and 1."
            )
        confidence = values[0].astype(np.float32)  # (D, H, W)
        return np.ascontiguousarray(confidence[0] if len(confidence) == 1 else confidence)

    def confidence_bits(self, path: Path) -> int:
        """16 for scaled levels, 0 for floating point."""
        with open_volume(path) as volume:
            kind = volume.file.get_data_dtype()
        return 8 * kind.itemsize if np.issubdtype(kind, np.integer) else 0

    def read_probabilities(self, path: Path) -> NDArray[np.float32]:
        """The classes are the channels."""
        with open_volume(path) as volume:
            values = volume.read(None).astype(np.float32)  # (K, D, H, W)
        return np.ascontiguousarray(values[:, 0] if values.shape[1] == 1 else values)

    def write_labels(self, path: Path, labels: NDArray[np.uint8], like: Image | None) -> None:
        """Write uint8 voxels."""
        nibabel.save(on_grid(labels, like), path)

    def write_confidence(self, path: Path, confidence: NDArray[Any], like: Image | None) -> None:
        """Write float32 voxels, or uint16 levels with the factor that makes them 0..1."""
        if confidence.dtype != np.uint16:
            confidence = confidence.astype(np.float32)
        file = on_grid(confidence, like)
        if confidence.dtype == np.uint16:
            file.header.set_slope_inter(_LEVEL, 0)
        nibabel.save(file, path)


@dataclass(frozen=True, slots=True)
class Volume:
    """An opened file whose voxels are not read yet; shape is (i, j, k, channels) as stored."""

    path: Path
    file: Any
    shape: tuple[int, int, int, int]
    orientation: Orientation

    @property
    def affine(self) -> Affine:
        """Affine of the pixels, from (column, row, slice) to millimetres."""
        stored = np.diag([*[millimetres_per_unit(self.file.header)] * 3, 1.0]) @ self.file.affine
        return self.orientation.pixel_affine(stored, self.shape[:3])

    @property
    def size(self) -> Size:
        """Height and width of a slice."""
        return self.orientation.shape(self.shape[:3])[1:]

    @property
    def slices(self) -> int:
        """Number of slices; 1 for a 2D file."""
        return self.orientation.shape(self.shape[:3])[0]

    @property
    def is_colour(self) -> bool:
        """Whether a voxel is a red, green, blue record."""
        return self.file.get_data_dtype().names is not None

    def read(self, slice_index: int | None) -> Any:
        """Voxels of one slice or of all, as (C, D, H, W), scaled as the header says."""
        if slice_index is None:
            voxels = np.asanyarray(self.file.dataobj)
        else:
            self._check_slice(slice_index)
            part = self.orientation.stored_index(slice_index, self.shape[:3])
            voxels = np.asanyarray(self.file.dataobj[part[: len(self.file.shape)]])
        if np.iscomplexobj(voxels):
            raise DataError(f"{self.path}: voxels are complex numbers. Save their magnitude.")
        spatial = (*voxels.shape, 1)[:_VOLUME_AXES]
        if self.is_colour:
            voxels = np.stack([voxels[name] for name in voxels.dtype.names[:3]], axis=-1)
        pixels = self.orientation.pixels(voxels.reshape(*spatial, self.shape[3]))  # (D, H, W, C)
        return np.moveaxis(pixels, -1, 0)

    def _check_slice(self, slice_index: int) -> None:
        if not 0 <= slice_index < self.slices:
            raise DataError(
                f"{self.path}: slice {slice_index} was asked for, the file has {self.slices} "
                "(counted from 0). An image and its mask must have the same number of slices."
            )


@contextmanager
def open_volume(path: Path) -> Iterator[Volume]:
    """Open a NIfTI file; whatever nibabel raises inside the block is a `DataError`."""
    try:
        check_regular(path)
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty. Copy it again, or remove it.")
        file: Any = nibabel.load(path)
        with np.errstate(all="ignore"):  # voxels may be nan, infinite or out of any range
            shape = _shape(path, file)
            yield Volume(path, file, shape, _orientation(file, shape[:3]))
    except _BROKEN as error:
        if isinstance(error, OSError) and (message := describe_os_error(path, error)):
            raise message from error
        raise DataError(
            f"{path}: not a readable NIfTI file ({reason(error)}). "
            "Copy or export it again, or remove it."
        ) from error


def _shape(path: Path, file: Any) -> tuple[int, int, int, int]:
    """Three axes and the channels of 2D, 3D and 4D files; axes of length 1 at the end go."""
    shape = list(file.shape)
    while shape[2:] and shape[-1] == 1:
        shape.pop()
    if len(shape) not in (2, 3, 4) or 0 in shape:
        raise DataError(
            f"{path}: shape {tuple(file.shape)} is neither a slice, a volume nor a volume with "
            "channels last. Save it with 2, 3 or 4 axes."
        )
    columns, rows, slices, channels = shape + [1] * (4 - len(shape))
    names = file.get_data_dtype().names
    if names is not None and channels > 1:
        raise DataError(f"{path}: channels of colour voxels. Save one volume of them.")
    return columns, rows, slices, 3 if names else channels


def _refuse_without_numbers(path: Path, volume: Volume, voxels: NDArray[Any]) -> None:
    """Refuse a file with a channel of nan and infinity alone; a single slice may be empty."""
    if np.issubdtype(voxels.dtype, np.integer) or _has_numbers(voxels):
        return
    if len(voxels[0]) == volume.slices or not _has_numbers(volume.read(None)):
        raise DataError(
            f"{path}: a channel holds no number at all, only nan or infinity. Export the file "
            "again, or remove it."
        )


def _has_numbers(voxels: NDArray[Any]) -> bool:
    """Whether every channel of (C, D, H, W) has a finite value."""
    return all(np.isfinite(channel).any() for channel in voxels)


def _windows(volume: Volume, slice_index: int | None, voxels: NDArray[Any]) -> list[Window]:
    """One window per channel, from the whole volume also when one slice of it is read."""
    if slice_index is None or volume.slices == 1:
        return [percentile_window(channel) for channel in voxels]
    stat = volume.path.stat()
    return list(_volume_windows(volume.path, stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4096)
def _volume_windows(path: Path, _modified: int, _length: int) -> tuple[Window, ...]:
    """Windows of a file, remembered so that its slices do not each read the whole volume."""
    with open_volume(path) as volume:
        return tuple(percentile_window(channel) for channel in volume.read(None))


def _orientation(file: Any, shape: tuple[int, int, int]) -> Orientation:
    """As the affine says; unknown without a form code."""
    header = file.header
    if isinstance(header, nibabel.Nifti1Header) and not (
        header["sform_code"] or header["qform_code"]
    ):
        return Orientation()
    return Orientation.of(file.affine, shape)
