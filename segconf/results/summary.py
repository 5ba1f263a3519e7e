"""From the maps of an image to the numbers of its row."""

import math
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from segconf.conventions import FULL_SCALE
from segconf.images.types import ByteArray
from segconf.metrics.overlap import expected_dice
from segconf.results.maps import LevelArray, Maps
from segconf.results.rows import CaseRow

BORDER_FRACTION = 0.02
"""Half width of the band along the border, as a fraction of the diagonal."""


PATCHES = 8
"""Patches along each side of an image, whatever its size."""


TOO_SMALL = 32
"""Images with a shorter side have too few pixels for a prediction."""


_PERCENTILE = 0.05


_HISTOGRAM_PIXELS = 1 << 23  # counts stay whole numbers in float32


def summarize(row: CaseRow, maps: Maps, *, shaded: float, ood_score: float = math.nan) -> CaseRow:
    """Fill in the numbers of a row.

    Args:
        row: name, file and size.
        maps: what was predicted.
        shaded: confidence below which pixels are shaded.
        ood_score: distance from the training images, where the model has a detector.
    """
    counts = level_counts(maps.levels)
    pixels = maps.mask.size
    foreground = int(np.count_nonzero(maps.mask))
    return replace(
        row,
        slices=len(maps.mask),
        slice=_slice_to_look_at(maps, shaded),
        foreground_fraction=foreground / pixels,
        mean_confidence=float(counts @ np.arange(len(counts)) / (pixels * FULL_SCALE)),
        confidence_p05=percentile(counts, _PERCENTILE),
        border_confidence=border_confidence(maps.mask, maps.levels),
        patch_confidence=patch_confidence(maps.levels),
        foreground_confidence=foreground_confidence(maps.mask, maps.levels),
        shaded_fraction=float(counts[: math.ceil(shaded * FULL_SCALE)].sum() / pixels),
        expected_dice=expected_dice(maps.overlap, maps.foreground, foreground),
        ood_score=ood_score,
    )


def patch_confidence(levels: LevelArray) -> float:
    """Lowest mean confidence of a patch, of `PATCHES` x `PATCHES` per slice as equal as can be.

    A side with fewer pixels has as many patches as pixels.
    """
    means = levels.astype(np.float64)  # (D, H, W)
    for axis in (1, 2):
        edges = np.linspace(0, levels.shape[axis], min(PATCHES, levels.shape[axis]) + 1).astype(int)
        sums = np.add.reduceat(means, edges[:-1], axis=axis)
        widths = np.diff(edges)
        means = sums / (widths[:, None] if axis == 1 else widths)
    return float(means.min() / FULL_SCALE)


def foreground_confidence(mask: ByteArray, levels: LevelArray) -> float:
    """Mean confidence of the predicted foreground; nan without any."""
    found = mask > 0
    pixels = int(np.count_nonzero(found))
    total = int(levels.sum(dtype=np.int64, where=found))
    return total / (pixels * FULL_SCALE) if pixels else math.nan


def level_counts(levels: LevelArray) -> NDArray[np.float64]:
    """How many pixels have each of the 65536 levels."""
    flat = levels.reshape(-1)
    counts = np.zeros(FULL_SCALE + 1)
    for start in range(0, len(flat), _HISTOGRAM_PIXELS):
        part = flat[start : start + _HISTOGRAM_PIXELS]
        found = cv2.calcHist([part[None]], [0], None, [FULL_SCALE + 1], [0, FULL_SCALE + 1])
        counts += found.reshape(-1)
    return counts


def percentile(counts: NDArray[np.float64], fraction: float) -> float:
    """Smallest confidence that at least this fraction of the pixels does not exceed."""
    reached = np.cumsum(counts)
    return float(np.searchsorted(reached, fraction * reached[-1]) / FULL_SCALE)


def border_confidence(mask: ByteArray, levels: LevelArray) -> float:
    """Mean confidence in the band along the border of the prediction; nan without a border.

    The band holds the pixels from which a square of half width `BORDER_FRACTION` of the diagonal
    (at least one pixel) reaches both foreground and background. The edge of the image is no border.
    """
    total, pixels = 0, 0
    radius = max(1, round(BORDER_FRACTION * math.hypot(*mask.shape[1:])))
    kernel = np.ones((2 * radius + 1, 2 * radius + 1), np.uint8)
    for plane, confidence in zip(mask, levels, strict=True):
        rows, columns = _neighbourhood(plane, radius)
        inside = (plane[rows, columns] > 0).view(np.uint8)
        if inside.size == 0:
            continue
        band = cv2.dilate(inside, kernel) != cv2.erode(inside, kernel)
        total += int(confidence[rows, columns].sum(dtype=np.int64, where=band))
        pixels += int(np.count_nonzero(band))
    return total / (pixels * FULL_SCALE) if pixels else math.nan


def _neighbourhood(plane: ByteArray, radius: int) -> tuple[slice, slice]:
    """Rows and columns that hold the foreground and a margin; empty without foreground.

    The margin is twice the radius, so that the cut looks like background to the erosion.
    """
    found = []
    for axis in (1, 0):
        used = np.flatnonzero(plane.any(axis=axis))
        if len(used) == 0:
            return slice(0, 0), slice(0, 0)
        found.append(slice(max(0, used[0] - 2 * radius), int(used[-1]) + 2 * radius + 1))
    return found[0], found[1]


def _slice_to_look_at(maps: Maps, shaded: float) -> int:
    """The slice with most shaded pixels; among equals with most foreground."""
    if len(maps.mask) == 1:
        return 0
    limit = math.ceil(shaded * FULL_SCALE)
    counts = [
        (np.count_nonzero(levels < limit), np.count_nonzero(mask))
        for levels, mask in zip(maps.levels, maps.mask, strict=True)
    ]
    return counts.index(max(counts))
