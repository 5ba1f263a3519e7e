"""NIfTI files read with nibabel: slices and volumes, their intensities and their geometry.

Voxel (i, j, k) of channel c is pixel ``[c, k, j, i]``: the first voxel axis runs along columns, the
second along rows, the third along slices. Nothing is flipped, so that reading and writing are
each other's inverse for every affine.
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

from segconf.errors import DataError
from segconf.images.resizing import resize_pixels
from segconf.images.types import (
    ByteArray,
    Header,
    Image,
    Size,
    check_ceiling,
    describe_os_error,
    reason,
)

Window = tuple[float, float]

_BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError),
    *(AttributeError, zlib.error, ImageFileError, HeaderDataError),
)
_PERCENTILES = (0.5, 99.5)


@dataclass(frozen=True, slots=True)
class Volume:
    """An opened file whose voxels are not read yet; shape is (columns, rows, slices, channels)."""

    path: Path
    file: Any
    shape: tuple[int, int, int, int]

    @property
    def size(self) -> Size:
        """Height and width of a slice."""
        return self.shape[1], self.shape[0]

    @property
    def slices(self) -> int:
        """Number of slices; 1 for a 2D file."""
        return self.shape[2]

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
            axes = len(self.file.shape)
            part = (slice(None), slice(None), slice(slice_index, slice_index + 1))[:axes]
            voxels = np.asanyarray(self.file.dataobj[part])
        if np.iscomplexobj(voxels):
            raise DataError(f"{self.path}: voxels are complex numbers. Save their magnitude.")
        if self.is_colour:
            voxels = np.stack([voxels[name] for name in voxels.dtype.names[:3]], axis=-1)
        columns, rows, _, channels = self.shape
        return voxels.reshape(columns, rows, -1, channels).transpose(3, 2, 1, 0)

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
        if path.is_dir():
            raise IsADirectoryError
        if path.stat().st_size == 0:
            raise DataError(f"{path}: the file is empty. Copy it again, or remove it.")
        file: Any = nibabel.load(path)
        with np.errstate(all="ignore"):  # voxels may be nan, infinite or out of any range
            yield Volume(path, file, _shape(path, file))
    except _BROKEN as error:
        if isinstance(error, OSError) and (message := describe_os_error(path, error)):
            raise message from error
        raise DataError(
            f"{path}: not a readable NIfTI file ({reason(error)}). "
            "Copy or export it again, or remove it."
        ) from error


def _shape(path: Path, file: Any) -> tuple[int, int, int, int]:
    """Columns, rows, slices, channels of 2D, 3D and 4D files; axes of length 1 at the end go."""
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


def volume_header(path: Path) -> Header:
    """Size, slices and channels, without reading voxels."""
    with open_volume(path) as volume:
        return Header(size=volume.size, slices=volume.slices, channels=volume.shape[3])


def read_volume(
    path: Path,
    *,
    channels: int,
    size: Size | None,
    slice_index: int | None,
    max_pixels: int,
    window: Window | None,
) -> Image:
    """Read a slice or a volume as 8-bit pixels; see `segconf.images.reading.read_image` for the rules."""
    with open_volume(path) as volume:
        check_ceiling(path, volume.size, volume.slices, max_pixels)
        voxels = volume.read(slice_index)  # (C, D, H, W)
        if volume.is_colour and window is None:
            pixels = voxels.astype(np.uint8)
        else:
            windows = [window] * len(voxels) if window else _windows(volume, slice_index, voxels)
            pixels = _to_bytes(voxels, windows)
        pixels = _with_channels(volume, pixels, channels)
        affine = volume.file.affine
        header = volume.file.header.copy()
        if slice_index is not None:
            affine = affine @ _voxel_map(offset=(0, 0, slice_index))
        if size is not None:
            affine = affine @ _resize_map(volume.size, size)
            pixels = resize_pixels(pixels, size)
        steps = np.linalg.norm(affine[:3, :3], axis=0)  # columns, rows, slices
    if pixels.shape[1] == 1:
        pixels = pixels[:, 0]  # (C, H, W)
    return Image(
        pixels=np.ascontiguousarray(pixels),
        path=path,
        affine=affine,
        spacing=tuple(float(step) for step in steps[pixels.ndim - 2 :: -1]),
        header=header,
    )


def _windows(volume: Volume, slice_index: int | None, voxels: NDArray[Any]) -> list[Window]:
    """One window per channel, from the whole volume also when one slice of it is read."""
    if slice_index is None or volume.slices == 1:
        return [_percentile_window(channel) for channel in voxels]
    stat = volume.path.stat()
    return list(_volume_windows(volume.path, stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=4096)
def _volume_windows(path: Path, _modified: int, _length: int) -> tuple[Window, ...]:
    """Windows of a file, remembered so that its slices do not each read the whole volume."""
    with open_volume(path) as volume:
        return tuple(_percentile_window(channel) for channel in volume.read(None))


def _percentile_window(values: NDArray[Any]) -> Window:
    """0.5 and 99.5 percentiles of the finite values; their extremes where these coincide."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0, 0.0
    low, high = (float(value) for value in np.percentile(finite, _PERCENTILES))
    return (low, high) if low < high else (float(finite.min()), float(finite.max()))


def _to_bytes(voxels: NDArray[Any], windows: list[Window]) -> ByteArray:
    """Map low..high to 0..255, rounded and clipped; nan is low; an empty window gives zeros."""
    pixels = np.zeros(voxels.shape, np.uint8)
    for channel, (low, high) in enumerate(windows):
        if low == high:
            continue
        for plane, values in zip(pixels[channel], voxels[channel], strict=True):
            levels = (values.astype(np.float64) - low) / (high - low) * 255
            plane[:] = np.rint(np.nan_to_num(levels.clip(0, 255)))
    return pixels


def _with_channels(volume: Volume, pixels: ByteArray, channels: int) -> ByteArray:
    """Grey is repeated, colour becomes ITU-R 601 luma; any other difference is an error."""
    found = len(pixels)
    if found == channels:
        return pixels
    if (found, channels) == (1, 3):
        return pixels.repeat(3, axis=0)
    if volume.is_colour and channels == 1:
        weights = np.array([299, 587, 114], np.uint32).reshape(3, 1, 1, 1)
        luma = ((pixels * weights).sum(axis=0, keepdims=True) + 500) // 1000
        return np.asarray(luma, np.uint8)
    raise DataError(
        f"{volume.path}: {channels} channels were asked for, the file has {found}. "
        f"Set model.channels to {found}, or give files with as many channels."
    )


def _voxel_map(
    *, scale: tuple[float, ...] = (1, 1, 1), offset: tuple[float, ...] = (0, 0, 0)
) -> NDArray[np.float64]:
    """(4, 4) map from new to old voxel indices (column, row, slice)."""
    matrix = np.diag([*scale, 1.0])
    matrix[:3, 3] = offset
    return matrix


def _resize_map(old: Size, new: Size) -> NDArray[np.float64]:
    """Voxel indices of a resized slice in the old one: outer edges stay where they are."""
    rows, columns = (before / after for before, after in zip(old, new, strict=True))
    return _voxel_map(scale=(columns, rows, 1), offset=((columns - 1) / 2, (rows - 1) / 2, 0))
