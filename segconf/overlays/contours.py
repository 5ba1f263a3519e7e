"""Lines that keep a promise: which pixels they surround, and how they are drawn.

The outer line is dashed and orange, the inner one dotted and sky blue: told apart with any colour
vision, and without colour by their style. Both lie on a dark line, visible on any skin.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from segconf.overlays.layers import Contour, Pixels, line_width

COLOURS = {"outer": (230, 159, 0), "inner": (86, 180, 233)}
"""Orange and sky blue of Okabe and Ito."""
DASHES = {"outer": (9, 5), "inner": (2, 4)}
"""Length of a dash and of the gap behind it, in line widths."""
_DARK = (16, 16, 16)
_MOST = 64

Regions = NDArray[np.unsignedinteger[Any]]


def shown_contours(contours: Iterable[Contour]) -> tuple[Contour, ...]:
    """The contours that pictures show: of each kind and class, that of the smallest promise."""
    tightest: dict[tuple[str, int], Contour] = {}
    for contour in sorted(contours, key=lambda one: one.alpha):
        tightest.setdefault((contour.kind, contour.class_index), contour)
    return tuple(tightest.values())[:_MOST]


def empty_regions(shape: tuple[int, ...], contours: Sequence[Contour]) -> Regions:
    """Room for `fill_regions`."""
    return np.zeros(shape, np.min_scalar_type((1 << len(contours)) - 1))


def fill_regions(
    regions: Regions, probabilities: NDArray[Any], contours: Sequence[Contour]
) -> Regions:
    """Set bit i of every pixel (...) inside contour i, by the probabilities (K, ...)."""
    for bit, contour in enumerate(contours):
        inside = probabilities[contour.class_index] >= contour.threshold
        regions |= inside.astype(regions.dtype) << regions.dtype.type(bit)
    return regions


def regions_of_maps(
    mask: NDArray[np.uint8], confidence: NDArray[np.float32], contours: Sequence[Contour]
) -> Regions:
    """Regions (...) of two classes, whose probabilities follow from mask and confidence."""
    foreground = np.where(mask > 0, confidence, 1 - confidence)
    probabilities = np.stack([1 - foreground, foreground])
    return fill_regions(empty_regions(mask.shape, contours), probabilities, contours)


def draw_promises(picture: Pixels, regions: Regions, contours: Sequence[Contour]) -> None:
    """Draw the line around every region in place; regions (h, w) as in `fill_regions`.

    The edge of the picture is no line.
    """
    width = line_width(max(regions.shape))
    last = np.array(regions.shape[::-1]) - 1
    for bit, contour in enumerate(contours):
        inside = ((regions >> regions.dtype.type(bit)) & 1).astype(np.uint8)
        outlines, _ = cv2.findContours(inside, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
        pieces = [
            piece
            for line in outlines
            for piece in dashes(line[:, 0], contour.kind, width)
            if not ((piece == 0) | (piece == last)).any(axis=1).all()
        ]
        _draw(picture, pieces, contour.kind, width)


def draw_sample(picture: Pixels, kind: Literal["outer", "inner"], *, width: int) -> None:
    """A sample of a line across the middle of the picture, in place."""
    columns = np.arange(picture.shape[1])
    line = np.stack([columns, np.full_like(columns, len(picture) // 2)], axis=1)
    _draw(picture, dashes(line.astype(np.int32), kind, width), kind, width)


def dashes(line: NDArray[Any], kind: Literal["outer", "inner"], width: int) -> list[NDArray[Any]]:
    """Pieces (n, 2) of a line of neighbouring pixels (N, 2), with gaps between them."""
    dash, gap = (length * (width + 1) for length in DASHES[kind])
    steps = np.hypot(*np.diff(line, axis=0, prepend=line[:1]).T)
    is_drawn = np.cumsum(steps) % (dash + gap) < dash  # (N,)
    starts = np.flatnonzero(np.diff(is_drawn.astype(np.int8))) + 1
    parts = np.split(line, starts)
    return [
        part for part, first in zip(parts, np.append(0, starts), strict=True) if is_drawn[first]
    ]


def _draw(
    picture: Pixels, pieces: list[NDArray[Any]], kind: Literal["outer", "inner"], width: int
) -> None:
    shaped = [piece.reshape(-1, 1, 2).astype(np.int32) for piece in pieces]
    for colour, thickness in ((_DARK, 2 * width + 3), (COLOURS[kind], width + 1)):
        cv2.polylines(picture, shaped, False, colour, thickness, cv2.LINE_AA)  # noqa: FBT003
