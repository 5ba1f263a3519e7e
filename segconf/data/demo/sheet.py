"""Many cases at a glance: images in rows with the contours of their masks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GAP = 4
BACKGROUND = 255
INNER_LINE = np.array([255, 255, 255], dtype=np.uint8)
OUTER_LINE = np.array([20, 20, 20], dtype=np.uint8)


def contact_sheet(
    images: Sequence[NDArray[np.uint8]], masks: Sequence[NDArray[np.bool_]], columns: int
) -> NDArray[np.uint8]:
    """Images (H, W, 3) in rows of ``columns``, four pixels apart, on white.

    The contour is one white pixel inside the mask and one dark pixel outside, so that it shows on
    any skin. A mask that touches the edge of the image has no line along that edge.

    Returns:
        (rows * (H + 4) + 4, columns * (W + 4) + 4, 3).
    """
    if not images or len(images) != len(masks) or columns < 1:
        raise ValueError(f"{len(images)} images, {len(masks)} masks, {columns} columns: no sheet")
    height, width = masks[0].shape
    rows = -(-len(images) // columns)
    shape = (rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3)
    sheet = np.full(shape, BACKGROUND, dtype=np.uint8)
    for number, (image, mask) in enumerate(zip(images, masks, strict=True)):
        if image.shape != (height, width, 3) or mask.shape != (height, width):
            raise ValueError(f"image {number} is {image.shape}, mask {mask.shape}: sizes differ")
        top = GAP + (number // columns) * (height + GAP)
        left = GAP + (number % columns) * (width + GAP)
        sheet[top : top + height, left : left + width] = _outlined(image, mask)
    return sheet


def _outlined(image: NDArray[np.uint8], mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Copy of the image with the pixels on both sides of the mask's border painted."""
    padded = np.pad(mask, 1, mode="edge")
    neighbours = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    outlined = image.copy()
    outlined[mask & ~np.logical_and.reduce(neighbours)] = INNER_LINE
    outlined[~mask & np.logical_or.reduce(neighbours)] = OUTER_LINE
    return outlined
