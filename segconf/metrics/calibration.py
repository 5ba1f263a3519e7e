"""Calibration: does a confidence of 90% mean right in 90% of the cases?"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ReliabilityCurve:
    """What a reliability diagram shows: (bins,) arrays; nan in a bin without pixels."""

    lower: NDArray[np.float64]  # edges of the bins (lower, upper]
    upper: NDArray[np.float64]
    confidence: NDArray[np.float64]  # mean in the bin
    accuracy: NDArray[np.float64]
    count: NDArray[np.int64]
    ece: float


def expected_calibration_error(gap: NDArray[Any], pixels: NDArray[Any]) -> NDArray[np.float64]:
    """Top-label ECE ``sum over bins of |right pixels - sum of confidences| / pixels``.

    A bin without pixels adds nothing; nan without any pixel.

    Args:
        gap: (..., bins) right pixels minus the sum of confidences.
        pixels: (...,) number of pixels in all bins.
    """
    total = np.abs(gap).sum(axis=-1)
    return np.where(pixels > 0, total / np.maximum(pixels, 1), np.nan)


def reliability_curve(
    count: NDArray[np.int64], correct: NDArray[np.int64], confidence: NDArray[np.float64]
) -> ReliabilityCurve:
    """Curve from the number of pixels, right pixels and sum of confidences of equal-width bins."""
    edges = np.arange(len(count) + 1) / len(count)
    filled = np.where(count > 0, count, 1)
    return ReliabilityCurve(
        lower=edges[:-1],
        upper=edges[1:],
        confidence=np.where(count > 0, confidence / filled, np.nan),
        accuracy=np.where(count > 0, correct / filled, np.nan),
        count=count.copy(),
        ece=float(expected_calibration_error(correct - confidence, count.sum())),
    )
