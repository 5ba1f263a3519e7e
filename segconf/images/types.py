"""Types of images: pixels with their geometry, headers, the ceiling on size, common errors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.orientation import Affine, Orientation, affine_of, spacing_of

Size = tuple[int, int]
"""Height and width, in this order."""
Window = tuple[float, float]
"""Intensities that become black and white."""
ByteArray = NDArray[np.uint8]

DEFAULT_MAX_PIXELS = 1_000_000_000
"""Ceiling on height x width x slices: about 3 GB as RGB; a larger claim is taken for a mistake."""


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """Pixels and the geometry they belong to.

    Attributes:
        pixels: (C, H, W) uint8, or (C, D, H, W) for a whole volume.
        path: file the pixels came from.
        affine: (4, 4) of exactly these pixels (also after taking a slice or resizing), from
            indices (column, row, slice) to millimetres in RAS+; None for pictures.
        spacing: millimetres between pixel centres along (H, W) or (D, H, W); None for pictures,
            and where the affine gives none.
        orientation: how the file stores these pixels, so that results are written as it is; None
            for pictures.
        header: NIfTI header of the file, so that results are written with the same codes and
            units; None for files of other formats.
    """

    pixels: ByteArray
    path: Path
    affine: Affine | None = None
    spacing: tuple[float, ...] | None = None
    orientation: Orientation | None = None
    header: Any = None

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        """(H, W) or (D, H, W)."""
        return self.pixels.shape[1:]


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says about itself before its pixels are decoded.

    Attributes:
        size: height and width as they will be read, after EXIF rotation.
        slices: slices of a volume; 1 for pictures.
        channels: channels of the file without alpha; a palette counts as colour.
        affine: of the pixels as they will be read; None for pictures.
        orientation: of the file; None for pictures.
        pixel_spacing: millimetres between rows and columns of a picture; None where unknown.
    """

    size: Size
    slices: int
    channels: int
    affine: Affine | None = None
    orientation: Orientation | None = None
    pixel_spacing: tuple[float, float] | None = None

    def spacing(self, size: Size | None = None) -> tuple[float, ...] | None:
        """Millimetres between (slices,) rows and columns, on another grid where one is given."""
        if self.affine is None:
            return self.pixel_spacing and resized_spacing(self.pixel_spacing, self.size, size)
        affine = affine_of(self.affine, self.size, slice_index=None, size=size)
        return spacing_of(affine, 2 if self.slices == 1 else 3)


def resized_spacing(
    spacing: tuple[float, float], old: Size, new: Size | None
) -> tuple[float, float]:
    """Millimetres between rows and columns after resizing, where a size is given."""
    height, width = old if new is None else new
    return spacing[0] * old[0] / height, spacing[1] * old[1] / width


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How an image is read.

    Attributes:
        channels: 1 or 3; any other number must be that of the file.
        size: height and width to resize to; the grid of the file when not given.
        slice_index: slice of a volume; the whole volume when not given. A picture has slice 0.
        max_pixels: ceiling on the pixels (times slices) of the file.
        window: intensities that become black and white, in formats without a range of their own.
    """

    channels: int = 3
    size: Size | None = None
    slice_index: int | None = None
    max_pixels: int = DEFAULT_MAX_PIXELS
    window: Window | None = None


def check_ceiling(path: Path, size: Size, slices: int, max_pixels: int) -> None:
    """Refuse a file that claims more pixels than the ceiling, before any memory is taken."""
    height, width = size
    if height * width * slices > max_pixels:
        claim = f"{height} x {width}" + (f" x {slices} slices" if slices > 1 else "")
        raise DataError(
            f"{path}: the image is {claim}, more than the ceiling of {max_pixels} pixels. "
            "If the file is genuine, raise data.max_pixels; else remove it."
        )


def describe_os_error(path: Path, error: OSError) -> DataError | None:
    """The message for a file that cannot be opened at all; None for any other error."""
    match error:
        case FileNotFoundError():
            return DataError(f"{path}: no such file. Check the path.")
        case PermissionError():
            return DataError(f"{path}: permission denied. Give yourself read access to the file.")
        case IsADirectoryError():
            return DataError(f"{path}: is a folder, not an image. Rename or remove it.")
        case _ if error.errno is not None:
            return DataError(f"{path}: cannot be read ({error.strerror}). Replace or remove it.")
        case _:
            return None


def reason(error: BaseException) -> str:
    """What a library said about a broken file, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
