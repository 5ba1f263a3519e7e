"""From one pixel grid to another: smooth for images, nearest neighbour for masks."""

from typing import TypeVar

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from segconf.images.types import ByteArray, Size

Box = tuple[float, float, float, float]
Value = TypeVar("Value", bound=np.generic)


def resize_picture(
    picture: PIL.Image.Image, size: Size, *, box: Box | None = None
) -> PIL.Image.Image:
    """Bilinear resize, antialiased when it shrinks; every image of the package passes here.

    Args:
        picture: 8-bit picture.
        size: height and width of the result.
        box: left, top, right, bottom of the part to resize; the whole picture by default.
    """
    height, width = size
    return picture.resize((width, height), PIL.Image.Resampling.BILINEAR, box=box)


def resize_pixels(pixels: ByteArray, size: Size) -> ByteArray:
    """Resize the last two axes of (..., H, W) like `resize_picture`, plane by plane."""
    if pixels.shape[-2:] == size:
        return pixels
    resized = np.empty((*pixels.shape[:-2], *size), np.uint8)  # (..., h, w)
    for plane in np.ndindex(pixels.shape[:-2]):
        resized[plane] = resize_picture(PIL.Image.fromarray(pixels[plane]), size)
    return resized


def slices_on_grid(pixels: ByteArray, size: Size) -> ByteArray:
    """A picture (C, H, W) or a volume (C, D, H, W) as slices (D, h, w, C) of another size."""
    small = resize_pixels(pixels, size)
    return small.reshape(len(small), -1, *size).transpose(1, 2, 3, 0)


def reduced_slices(pixels: ByteArray, band: Size, size: Size) -> ByteArray:
    """Like `slices_on_grid`, by way of a coarser grid that leaves out what is finer."""
    return slices_on_grid(resize_pixels(pixels, band), size)


def resize_mask(mask: NDArray[Value], size: Size) -> NDArray[Value]:
    """Nearest neighbour between pixel centres on the last two axes of (..., H, W).

    Row r of h takes row ``floor((r + 1/2) * H / h)`` of H, in integers; columns likewise.
    """
    if mask.shape[-2:] == size:
        return mask
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new)
        for old, new in zip(mask.shape[-2:], size, strict=True)
    )
    return mask[..., rows[:, None], columns]
