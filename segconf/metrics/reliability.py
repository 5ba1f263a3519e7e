"""Reliability: mean confidence and accuracy in bins, and the expected calibration error."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segconf.metrics.ranking_histogram import Groups

# As from RankingHistogram.levels.
Levels: TypeAlias = Iterable[tuple[Groups, NDArray[np.float64]]]


ECE_BINS = 15


_SATURATED = 100.0  # log-odds above which a miss does not change any sum


@dataclass(frozen=True, slots=True)
class ReliabilityCurve:
    """What a reliability diagram shows: (bins,) arrays; nan in a bin without pixels."""

    lower: NDArray[np.float64]  # edges of the bins (lower, upper]
    upper: NDArray[np.float64]
    confidence: NDArray[np.float64]  # mean in the bin
    accuracy: NDArray[np.float64]
    count: NDArray[np.int64]
    ece: float


@dataclass(frozen=True, slots=True)
class ConfidenceSums:
    """Sums over pixels, taking confidence for the probability that the prediction is right."""

    count: NDArray[np.int64]  # (ECE bins,) pixels
    correct: NDArray[np.int64]  # (ECE bins,) right pixels
    confidence: NDArray[np.float64]  # (ECE bins,) sum of confidences
    nll: float  # of "is right"; if there are two classes, that of the true class
    brier: float  # the same

    @property
    def gap(self) -> NDArray[np.float64]:
        """(ECE bins,) right pixels minus the sum of confidences."""
        return self.correct - self.confidence


def ece_edges(num_classes: int) -> NDArray[np.float32]:
    """Ranking values at the inner edges k/15 of the bins: ``log(k / (15 - k)) + log(K - 1)``.

    Values are compared with them in float32, so a confidence of exactly 0.6 is on the edge 9/15 in
    spite of rounding, and belongs to the bin below.
    """
    lower = np.arange(1, ECE_BINS)
    return np.log(lower * (num_classes - 1) / (ECE_BINS - lower)).astype(np.float32)


def confidence_sums(levels: Levels, num_classes: int) -> ConfidenceSums:
    """Sum over all pixels.

    With log-odds ``v`` and ``e = exp(-v)``: confidence ``1 / (1 + e)`` and miss ``e / (1 + e)``.
    NLL is ``log(1 + e)``, plus ``v`` where wrong; Brier score is ``2 miss^2``, or
    ``2 confidence^2`` where wrong.
    """
    edges = ece_edges(num_classes)
    count = np.zeros((2, ECE_BINS))  # of right and of wrong pixels; exact up to 2^53
    confidences = np.zeros(ECE_BINS)
    nll = brier = 0.0
    for groups, typical in levels:
        places = np.searchsorted(edges, groups.value)  # (G,)
        for wrong, pixels in enumerate((groups.correct, groups.wrong)):
            some = np.flatnonzero(pixels)
            number, place = pixels[some], places[some]
            log_odds = typical[wrong, some] - math.log(num_classes - 1)
            odds = np.exp(-np.minimum(log_odds, _SATURATED))
            confidence = 1 / (1 + odds)
            count[wrong] += np.bincount(place, number, ECE_BINS)
            confidences += np.bincount(place, number * confidence, ECE_BINS)
            surprise = np.log1p(odds) + log_odds if wrong else np.log1p(odds)
            nll += float((number * surprise).sum())
            error = confidence if wrong else odds * confidence
            brier += 2 * float((number * error**2).sum())
    correct, incorrect = count.astype(np.int64)
    return ConfidenceSums(correct + incorrect, correct, confidences, nll, brier)


def expected_calibration_error(gap: NDArray[Any], pixels: NDArray[Any]) -> NDArray[np.float64]:
    """Top-label ECE ``sum over bins of |right pixels - sum of confidences| / pixels``.

    A bin without pixels adds nothing; nan without any pixel.

    Args:
        gap: (..., bins) right pixels minus the sum of confidences.
        pixels: (...,) number of pixels in all bins.
    """
    total = np.abs(gap).sum(axis=-1)
    return np.where(pixels > 0, total / np.maximum(pixels, 1), np.nan)


def reliability_curve(bins: ConfidenceSums) -> ReliabilityCurve:
    """Curve of the filled bins."""
    count = bins.count
    edges = np.arange(len(count) + 1) / len(count)
    filled = np.where(count > 0, count, 1)
    return ReliabilityCurve(
        lower=edges[:-1],
        upper=edges[1:],
        confidence=np.where(count > 0, bins.confidence / filled, np.nan),
        accuracy=np.where(count > 0, bins.correct / filled, np.nan),
        count=count,
        ece=float(expected_calibration_error(bins.gap, count.sum())),
    )
