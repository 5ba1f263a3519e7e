"""Masks: class indices exactly as they were stored, or an error that says what is there."""

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL.ImageFile import ImageFile

from segconf.conventions import IGNORE
from segconf.errors import DataError
from segconf.images.nifti import open_volume
from segconf.images.orientation import turn_upright
from segconf.images.raster import decode, grey_values, open_picture
from segconf.images.resizing import resize_mask
from segconf.images.types import (
    DEFAULT_MAX_PIXELS,
    NIFTI_SUFFIXES,
    ByteArray,
    Size,
    check_ceiling,
    supported_suffix,
)

_WHITE = 255
_DEEP_WHITE = 65535
_SHOWN_VALUES = 6
_BINARY = 2


def read_mask(
    path: Path | str,
    *,
    classes: int = 2,
    size: Size | None = None,
    slice_index: int | None = None,
    ignore_255: bool = False,
    expected_size: Size | None = None,
) -> ByteArray:
    """Class index of every pixel; nothing is thresholded, rounded or guessed.

    What counts as a class, judged by the values of the whole file:

    - values 0..K-1 are the classes;
    - K = 2: 0 and 255 (or 0 and 65535) are the classes 0 and 1; a mask of 255 alone is all ones.
      255 therefore never means "ignore" here, and 0, 1, 255 in one file is an error;
    - K > 2: 255 is "ignore" with `ignore_255`, else an error like any value >= K.

    A palette counts by its indices. 1-bit, 16-bit, grey stored as RGB or with a constant alpha, and
    whole numbers stored as floating point are accepted; colours and a varying alpha are not. The
    EXIF orientation is applied as it is to images.

    Args:
        path: picture or NIfTI file.
        classes: number of classes K, 2 to 255.
        size: height and width to resize to, nearest neighbour between pixel centres.
        slice_index: slice of a NIfTI volume; all slices, as (D, H, W), when not given.
        ignore_255: with K > 2, whether 255 marks pixels without a class.
        expected_size: height and width of the image, checked before anything is resized.

    Returns:
        (H, W) uint8, 255 = ignore.

    Raises:
        DataError: the file cannot be read, has another size, or holds values that are no classes.
    """
    if classes not in range(2, 256):
        raise ValueError(f"classes must be between 2 and 255, not {classes}")
    path = Path(path)
    if supported_suffix(path) in NIFTI_SUFFIXES:
        values = _read_labels(path, slice_index, expected_size)
    elif slice_index in (None, 0):
        values = _read_levels(path, expected_size)
    else:
        raise ValueError(f"{path} is a picture: it has no slice {slice_index}")
    white = _value_of_white(path, _distinct(values), classes, ignore_255=ignore_255)
    if size is not None:
        values = resize_mask(values, size)
    return np.ascontiguousarray(values == white if white else values, np.uint8)


def _read_levels(path: Path, expected_size: Size | None) -> NDArray[Any]:
    """Stored values of a picture, upright (H, W)."""
    with open_picture(path) as picture:
        _check_size(path, picture.size, expected_size)
        # The image of that size has passed the configured ceiling, so its mask may pass as well.
        if expected_size is None:
            check_ceiling(path, picture.size, 1, DEFAULT_MAX_PIXELS)
        decode(picture.decoder)
        return turn_upright(_single_band(path, picture.decoder), picture.orientation)


def _read_labels(path: Path, slice_index: int | None, expected_size: Size | None) -> NDArray[Any]:
    """Stored values of a NIfTI file, (H, W) or (D, H, W)."""
    with open_volume(path) as volume:
        _check_size(path, volume.size, expected_size)
        check_ceiling(path, volume.size, volume.slices, DEFAULT_MAX_PIXELS)
        if volume.shape[3] != 1:
            raise DataError(
                f"{path}: the mask has {volume.shape[3]} channels. "
                "Save one channel with the class index of every voxel."
            )
        labels = volume.read(slice_index)[0]  # (D, H, W)
    single: NDArray[Any] = labels[0]
    return single if len(labels) == 1 else labels


def _check_size(path: Path, size: Size, expected: Size | None) -> None:
    if expected is None or size == expected:
        return
    hint = ""
    if size == (expected[1], expected[0]):
        hint = (
            " Height and width are exchanged: probably one of the two files is rotated by its EXIF "
            "orientation and the other is not; save both without it."
        )
    raise DataError(
        f"{path}: the mask is {size[0]} x {size[1]}, its image {expected[0]} x {expected[1]} "
        f"(height x width). A mask must have the size of its image.{hint}"
    )


def _single_band(path: Path, decoder: ImageFile) -> NDArray[Any]:
    """One value per pixel (H, W): grey level, or palette index."""
    match decoder.mode:
        case "1" | "L":
            return np.asarray(decoder).astype(np.uint8, copy=False)
        case "P":
            _check_palette(path, decoder)
            return np.asarray(decoder)
        case "LA" | "RGB" | "RGBA":
            bands = [np.asarray(band) for band in decoder.split()]
            _check_bands(path, decoder.mode, bands)
            return bands[0]
        case mode if mode.startswith("I") or mode == "F":
            return grey_values(decoder)
        case mode:
            raise DataError(
                f"{path}: the mask has {mode} pixels. Save it as a grey or palette PNG whose "
                "values are the class indices."
            )


def _check_bands(path: Path, mode: str, bands: list[ByteArray]) -> None:
    """Colours must be grey and alpha constant: else it is unknown which of them is the mask."""
    if mode.endswith("A") and bands[-1].min() != bands[-1].max():
        raise DataError(
            f"{path}: the mask has a transparency that varies, so it is unclear whether the class "
            "is in the colour or in the transparency. Save it as grey or palette PNG without alpha."
        )
    if mode.startswith("RGB") and not all(np.array_equal(bands[0], band) for band in bands[1:3]):
        raise DataError(
            f"{path}: the mask is coloured. Save it as a grey or palette PNG whose values are the "
            "class indices, or exchange the folders if it is an image."
        )


def _check_palette(path: Path, decoder: ImageFile) -> None:
    """A palette of black and white must mean by its colours what it means by its indices."""
    palette = np.array(decoder.getpalette("RGB"), np.uint8).reshape(-1, 3)
    used = [index for index in np.flatnonzero(decoder.histogram()) if index < len(palette)]
    black = {index for index in used if not palette[index].any()}
    white = {index for index in used if (palette[index] == _WHITE).all()}
    if black | white == set(used) and white and (0 in white or black - {0}):
        raise DataError(
            f"{path}: the palette draws class 0 white or another class black, so colours and "
            "indices contradict each other. Save the mask as grey PNG."
        )


def _distinct(values: NDArray[Any]) -> NDArray[Any]:
    """Sorted distinct values; by counting where there are at most 256."""
    if values.dtype == np.uint8 and values.size:
        plane = values.reshape(-1, values.shape[-1])
        return np.flatnonzero(PIL.Image.fromarray(plane).histogram())
    return np.unique(values)


def _value_of_white(
    path: Path, found: NDArray[Any], classes: int, *, ignore_255: bool
) -> int | None:
    """The value that stands for class 1 in a black and white mask; None where values are classes.

    Raises:
        DataError: some values are neither.
    """
    values = set(found.tolist())
    ignored = {IGNORE} if ignore_255 and classes > _BINARY else set()
    if values <= set(range(classes)) | ignored:
        return None
    if classes == _BINARY:
        for white in (_WHITE, _DEEP_WHITE):
            if values <= {0, white}:
                return white
    raise DataError(f"{path}: {_complaint(found, classes, ignore_255=ignore_255)}")


def _complaint(found: NDArray[Any], classes: int, *, ignore_255: bool) -> str:
    """What was found, what is expected, and how to get there."""
    if len(found) <= _SHOWN_VALUES:
        listing = "values " + ", ".join(f"{value:g}" for value in found)
    else:
        picked = (found[0], found[1], found[len(found) // 2], found[-1])
        listing = f"{len(found)} values, such as " + ", ".join(f"{value:g}" for value in picked)
    if classes == _BINARY:
        return (
            f"found {listing}; a mask of two classes holds 0 and 1, or 0 and 255. Levels in "
            "between come from JPEG or from smooth resizing: export the mask again as PNG, or "
            "threshold it yourself. For more classes set model.classes."
        )
    expected = f"0 to {classes - 1}" + (" and 255 (ignore)" if ignore_255 else "")
    way_out = "Renumber the mask, or set model.classes."
    if IGNORE in found and not ignore_255:
        way_out += " If 255 marks pixels without a class, set data.ignore_255."
    return f"found {listing}; a mask of {classes} classes holds {expected}. {way_out}"
