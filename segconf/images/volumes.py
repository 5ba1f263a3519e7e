"""Common to formats of volumes: intensity windows and channels."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.types import ByteArray, Window

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
