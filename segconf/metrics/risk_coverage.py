"""The risk-coverage curve and the confidence threshold that keeps the risk below a bound."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.metrics.ranking_histogram import Groups


@dataclass(frozen=True, slots=True)
class RiskCoverageCurve:
    """Expected risk of the most confident pixels: (P,) arrays over ascending coverage."""

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    optimal_risk: NDArray[np.float64]  # same accuracy, all errors ranked last
    confidence: NDArray[np.float64]  # of the least confident pixel that is selected
    random_risk: float  # confidence without any information: the overall error rate
    aurc: float

    def coverage_at(self, max_risk: float) -> float:
        """Largest coverage of the curve whose risk is at most ``max_risk``; 0 if there is none."""
        allowed = np.flatnonzero(self.risk <= max_risk)
        return float(self.coverage[allowed[-1]]) if allowed.size else 0.0


@dataclass(frozen=True, slots=True)
class RiskThreshold:
    """Pixels with at least this confidence, their fraction and their error rate."""

    confidence: float
    log_odds: float  # the same threshold where confidence is too close to 1 to be told apart
    coverage: float
    risk: float


def selected_errors(blocks: Iterable[Groups], selected: NDArray[np.int64]) -> NDArray[np.float64]:
    """Expected errors and ranking value when the n most confident pixels are selected.

    Args:
        blocks: groups by descending confidence.
        selected: (P,) ascending numbers of pixels, each at least 1.

    Returns:
        (2, P): expected errors; value of the group that the last selected pixel belongs to.
    """
    result = np.full((2, len(selected)), np.nan)
    pixels, errors = 0, 0
    for block in blocks:
        size = block.correct + block.wrong
        ends = pixels + np.cumsum(size)
        first, last = np.searchsorted(selected, [pixels + 1, int(ends[-1]) + 1])
        inside = selected[first:last]
        group = np.searchsorted(ends, inside)  # first group that ends at or after the pixel
        wrong_before = errors + np.cumsum(block.wrong) - block.wrong
        taken = inside - (ends - size)[group]
        result[0, first:last] = wrong_before[group] + block.wrong[group] * (taken / size[group])
        result[1, first:last] = block.value[group]
        pixels, errors = int(ends[-1]), errors + int(block.wrong.sum())
    return result


def selection_above(
    blocks: Iterable[Groups], confidence_of: Callable[[NDArray[np.float32]], Any], limit: float
) -> tuple[int, int]:
    """Pixels, and errors among them, whose confidence is at least the limit.

    Args:
        blocks: groups in any order.
        confidence_of: confidences of ranking values.
        limit: confidence.
    """
    pixels, errors = 0, 0
    for block in blocks:
        selected = confidence_of(block.value) >= limit
        wrong = int(block.wrong[selected].sum())
        pixels, errors = pixels + int(block.correct[selected].sum()) + wrong, errors + wrong
    return pixels, errors


def largest_selection(blocks: Iterable[Groups], max_risk: float) -> tuple[float, int, int]:
    """Lowest threshold whose selected pixels, ties included, have at most this risk.

    Returns:
        Ranking value of the threshold, pixels and errors selected; ``(inf, 0, 0)`` if even the most
        confident group is too wrong.
    """
    best = (math.inf, 0, 0)
    pixels, errors = 0, 0
    for block in blocks:
        selected = pixels + np.cumsum(block.correct + block.wrong)
        wrong = errors + np.cumsum(block.wrong)
        allowed = np.flatnonzero(wrong <= max_risk * selected)
        if allowed.size:
            last = allowed[-1]
            best = (float(block.value[last]), int(selected[last]), int(wrong[last]))
        pixels, errors = int(selected[-1]), int(wrong[-1])
    return best
