"""What an image is here: pixels with their geometry, file suffixes, and the ceiling on size."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError

Size = tuple[int, int]
"""Height and width, in this order."""
ByteArray = NDArray[np.uint8]

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff"})
NIFTI_SUFFIXES = frozenset({".nii", ".nii.gz"})
IMAGE_SUFFIXES = PICTURE_SUFFIXES | NIFTI_SUFFIXES

DEFAULT_MAX_PIXELS = 1_000_000_000
"""Ceiling on height x width x slices: about 3 GB as RGB; a larger claim is taken for a mistake."""


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """Pixels and the geometry they belong to.

    Attributes:
        pixels: (C, H, W) uint8, or (C, D, H, W) for a whole volume.
        path: file the pixels came from.
        affine: (4, 4) NIfTI affine of exactly these pixels (also after taking a slice or
            resizing), from voxel indices (column, row, slice) to millimetres; None for pictures.
        spacing: distance between pixel centres along (H, W) or (D, H, W); None for pictures.
        header: NIfTI header of the file, so that results are written with the same codes and
            units; None for pictures.
    """

    pixels: ByteArray
    path: Path
    affine: NDArray[np.float64] | None = None
    spacing: tuple[float, ...] | None = None
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
        slices: slices of a NIfTI volume; 1 for pictures.
        channels: channels of the file without alpha; a palette counts as colour.
    """

    size: Size
    slices: int
    channels: int


def image_suffix(path: Path | str) -> str:
    """Lower-case suffix if the format is supported (``.nii.gz`` as a whole), else ``""``."""
    name = Path(path).name.lower()
    for suffix in IMAGE_SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return suffix
    return ""


def supported_suffix(path: Path) -> str:
    """Suffix of a file that is about to be read; an unsupported one is a `DataError`."""
    suffix = image_suffix(path)
    if not suffix:
        known = ", ".join(sorted(IMAGE_SUFFIXES))
        raise DataError(f"{path}: unknown image format. Convert it to one of {known}.")
    return suffix


def case_name(path: Path | str) -> str:
    """File name without its suffix; ``.nii.gz`` is one suffix."""
    suffix = image_suffix(path)
    return Path(path).name[: -len(suffix)] if suffix else Path(path).stem


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
        case _:
            return None


def reason(error: BaseException) -> str:
    """What a library said about a broken file, on one line."""
    return " ".join(str(error).split()) or type(error).__name__
