"""Masks: class indices exactly as they were stored, or an error that says what is there."""

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from segconf.conventions import FULL_SCALE, IGNORE
from segconf.errors import DataError
from segconf.images.image_format import format_of
from segconf.images.orientation import same_grid
from segconf.images.resizing import resize_mask
from segconf.images.types import DEFAULT_MAX_PIXELS, ByteArray, Header, Size, check_ceiling

_WHITE = 255
_DEEP_WHITE = FULL_SCALE
_SHOWN_VALUES = 6
_BINARY = 2


def read_mask(
    path: Path | str,
    *,
    classes: int = 2,
    size: Size | None = None,
    slice_index: int | None = None,
    ignore_255: bool = False,
    image: Header | None = None,
) -> ByteArray:
    """Class index of every pixel; nothing is thresholded, rounded or guessed.

    What counts as a class, by the values of the whole file:

    - values 0..K-1 are the classes;
    - K = 2: 0 and 255 (or 0 and 65535) are the classes 0 and 1; a mask of 255 alone is all ones.
      255 therefore never means "ignore" here, and 0, 1, 255 in one file is an error;
    - K > 2: 255 is "ignore" with `ignore_255`, else an error like any value >= K.

    A palette counts by its indices. 1-bit, 16-bit, grey stored as RGB or with a constant alpha, and
    whole numbers stored as floating point are accepted; colours and a varying alpha are not. The
    EXIF orientation is applied as it is to images.

    Args:
        path: file of any format.
        classes: number of classes K, 2 to 255.
        size: height and width to resize to, nearest neighbour between pixel centres.
        slice_index: slice of a volume; all slices, as (D, H, W), when not given.
        ignore_255: with K > 2, whether 255 marks pixels without a class.
        image: header of the image; size and place of the mask are checked by it.

    Returns:
        (H, W) uint8, 255 = ignore.

    Raises:
        DataError: the file cannot be read, has another size or lies elsewhere than its image, or
            holds values that are no classes.
    """
    if classes not in range(2, 256):
        raise ValueError(f"classes must be between 2 and 255, not {classes}")
    path = Path(path)
    image_format = format_of(path)
    header = image_format.read_header(path)
    if image is not None:
        check_mask_grid(path, header, image)
    # The image of that size has passed the configured ceiling, so its mask may pass as well.
    if image is None or header.slices > 1:
        check_ceiling(path, header.size, header.slices, DEFAULT_MAX_PIXELS)
    values = image_format.read_labels(path, slice_index)
    white = _value_of_white(path, _distinct(values), classes, ignore_255=ignore_255)
    if size is not None:
        values = resize_mask(values, size)
    return np.ascontiguousarray(values == white if white else values, np.uint8)


def check_mask_grid(path: Path, mask: Header, image: Header) -> None:
    """Refuse a mask that has another size than its image, or lies elsewhere.

    Raises:
        DataError: it is so.
    """
    _check_size(path, mask.size, image.size)
    check_place(path, mask, image)


def _check_size(path: Path, size: Size, expected: Size) -> None:
    if size == expected:
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


def check_place(path: Path, found: Header, image: Header) -> None:
    """Refuse a mask or map of a volume that does not lie where its image lies.

    Raises:
        DataError: the affines put the two at different places, or only one of them says how the
            patient lay.
    """
    if found.orientation is None or image.orientation is None:
        return  # pictures lie nowhere
    if not (found.orientation.directions or image.orientation.directions):
        return
    if not (found.orientation.directions and image.orientation.directions):
        missing = "its image" if found.orientation.directions else "the file"
        raise DataError(
            f"{path}: {missing} does not say how the patient lay, so that left and right may be "
            "exchanged. Write the affine of the image, with its form codes, into both files."
        )
    shape = (image.slices, *image.size)
    if found.affine is None or image.affine is None or found.slices != image.slices:
        return
    if not same_grid(image.affine, found.affine, shape):
        raise DataError(
            f"{path}: lies elsewhere than its image, more than half a voxel away. Write it with "
            "the affine of the image, or resample it to the grid of the image."
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
