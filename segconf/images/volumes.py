"""Common to formats of volumes: intensity windows, channels, and the affine of another grid."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.types import ByteArray, Size, Window

_PERCENTILES = (0.5, 99.5)


def percentile_window(values: NDArray[Any]) -> Window:
    """0.5 and 99.5 percentiles of the finite values; their extremes where these coincide."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return 0.0, 0.0
    low, high = (float(value) for value in np.percentile(finite, _PERCENTILES))
    return (low, high) if low < high else (float(finite.min()), float(finite.max()))


def to_bytes(voxels: NDArray[Any], windows: list[Window]) -> ByteArray:
    """Map low..high to 0..255, rounded and clipped; nan is low; an empty window gives zeros.

    Args:
        voxels: (C, D, H, W).
        windows: low and high of each channel.
    """
    pixels = np.zeros(voxels.shape, np.uint8)
    for channel, (low, high) in enumerate(windows):
        if low == high:
            continue
        for plane, values in zip(pixels[channel], voxels[channel], strict=True):
            levels = (values.astype(np.float64) - low) / (high - low) * 255
            plane[:] = np.rint(np.nan_to_num(levels.clip(0, 255)))
    return pixels


def with_channels(path: Path, pixels: ByteArray, channels: int, *, is_colour: bool) -> ByteArray:
    """Grey is repeated, colour becomes ITU-R 601 luma; any other difference is an error.

    Args:
        path: of the file, for the error.
        pixels: (C, D, H, W).
        channels: how many are asked for.
        is_colour: whether three channels are red, green, blue.
    """
    found = len(pixels)
    if found == channels:
        return pixels
    if (found, channels) == (1, 3):
        return pixels.repeat(3, axis=0)
    if is_colour and channels == 1:
        weights = np.array([299, 587, 114], np.uint32).reshape(3, 1, 1, 1)
        luma = ((pixels * weights).sum(axis=0, keepdims=True) + 500) // 1000
        return np.asarray(luma, np.uint8)
    raise DataError(
        f"{path}: {channels} channels were asked for, the file has {found}. "
        f"Set model.channels to {found}, or give files with as many channels."
    )


def affine_of(
    affine: NDArray[np.float64], grid: Size, *, slice_index: int | None, size: Size | None
) -> NDArray[np.float64]:
    """(4, 4) affine of one slice, or of a resized grid, of a volume.

    Args:
        affine: of the pixels of the whole volume, from (column, row, slice).
        grid: height and width of its slices.
        slice_index: the slice that was taken, if one was.
        size: height and width after resizing, if it was resized.
    """
    if slice_index is not None:
        affine = affine @ _voxel_map(offset=(0, 0, slice_index))
    if size is not None:
        affine = affine @ _resize_map(grid, size)
    return affine


def spacing_of(affine: NDArray[np.float64], axes: int) -> tuple[float, ...] | None:
    """Distance between pixel centres along (H, W) or (D, H, W); None where one is no distance."""
    steps = np.linalg.norm(affine[:3, :3], axis=0)[:axes]  # columns, rows, slices
    if not (np.isfinite(steps) & (steps > 0)).all():
        return None
    return tuple(float(step) for step in steps[::-1])


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
