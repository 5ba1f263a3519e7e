"""Risk threshold: the confidence at or above which few pixels are wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.streaming import ConfidenceMetrics

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Threshold:
    """Fitted on validation images.

    Attributes:
        threshold: the lowest confidence whose pixels, from it upwards, keep the risk.
        max_risk: fraction of wrong pixels that was allowed.
        risk: fraction of wrong pixels at or above the threshold; nan without any.
        risk_interval: of that fraction at this threshold, 95% over resampled images.
        coverage: fraction of pixels at or above the threshold.
        coverage_interval: the same for the coverage.
        right_below: fraction of right pixels below the threshold; nan without any.
    """

    threshold: float
    max_risk: float
    risk: float
    risk_interval: tuple[float, float]
    coverage: float
    coverage_interval: tuple[float, float]
    right_below: float


def fit_threshold(
    pooled: ConfidenceMetrics, summaries: Sequence[ImageSummary], max_risk: float, *, seed: int = 0
) -> Threshold:
    """Lowest confidence at or above which at most `max_risk` of the pixels are wrong.

    Args:
        pooled: all validation pixels.
        summaries: the same, image by image, for the intervals.
        max_risk: fraction of wrong pixels that is allowed.
        seed: of the resampling.
    """
    found = pooled.threshold_for_risk(max_risk)
    pixels = pooled.pixels
    right = float(pooled.confusion.trace())
    above = found.coverage * pixels
    right_above = above * (1 - found.risk) if above else 0.0
    below = pixels - above
    risk_interval, coverage_interval = _intervals(summaries, found.log_odds, seed)
    return Threshold(
        threshold=min(found.confidence, 1.0),
        max_risk=max_risk,
        risk=found.risk,
        risk_interval=risk_interval,
        coverage=found.coverage,
        coverage_interval=coverage_interval,
        right_below=(right - right_above) / below if below else float("nan"),
    )


def _intervals(
    summaries: Sequence[ImageSummary], log_odds: float, seed: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Percentiles of risk and coverage at a fixed threshold over resampled images."""
    counts = np.array([summary.counts_above(log_odds) for summary in summaries])  # (I, 3)
    generator = np.random.default_rng(seed)
    picks = generator.integers(len(counts), size=(RESAMPLES, len(counts)))
    wrong, above, total = counts[picks].sum(axis=1).T  # (R,) each
    filled = above > 0
    return _interval(wrong[filled] / above[filled]), _interval(above / total)


def _interval(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float]:
    if values.size == 0:
        return float("nan"), float("nan")
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)
