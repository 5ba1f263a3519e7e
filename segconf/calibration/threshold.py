"""Risk threshold: the confidence at or above which few pixels are wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from segconf.metrics.bootstrap import Summaries, draw_units, percentile_interval
from segconf.metrics.label_summary import LabelSummaries
from segconf.metrics.selective import ratio
from segconf.metrics.streaming import ConfidenceMetrics


@dataclass(frozen=True, slots=True)
class Threshold:
    """Fitted on validation images.

    Attributes:
        threshold: the lowest confidence whose pixels, from it upwards, keep the risk.
        max_risk: fraction of wrong pixels that was allowed.
        risk: fraction of wrong pixels at or above the threshold; nan without any.
        risk_interval: of that fraction at this threshold, 95% over resampled groups of images.
        coverage: fraction of pixels at or above the threshold.
        coverage_interval: the same for the coverage.
    """

    threshold: float
    max_risk: float
    risk: float
    risk_interval: tuple[float, float]
    coverage: float
    coverage_interval: tuple[float, float]


def fit_threshold(
    pooled: ConfidenceMetrics,
    summaries: Summaries,
    max_risk: float,
    *,
    groups: Sequence[str],
    seed: int = 0,
) -> Threshold:
    """Lowest confidence at or above which at most `max_risk` of the pixels are wrong.

    Args:
        pooled: all validation pixels.
        summaries: the same, image by image, for the intervals.
        max_risk: fraction of wrong pixels that is allowed.
        groups: of the images.
        seed: of the resampling.
    """
    found = pooled.threshold_for_risk(max_risk)
    risk_interval, coverage_interval = _intervals(summaries, groups, found.log_odds, seed)
    return Threshold(
        threshold=min(found.confidence, 1.0),
        max_risk=max_risk,
        risk=found.risk,
        risk_interval=risk_interval,
        coverage=found.coverage,
        coverage_interval=coverage_interval,
    )


def _intervals(
    summaries: Summaries, groups: Sequence[str], log_odds: float, seed: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Percentiles of risk and coverage at a fixed threshold over resampled groups."""
    counts = (
        summaries.counts_above(log_odds)
        if isinstance(summaries, LabelSummaries)
        else np.array([summary.counts_above(log_odds) for summary in summaries])
    )  # (I, 3)
    weights = draw_units(groups, torch.Generator().manual_seed(seed))  # (R, I)
    wrong, above, total = (weights @ counts).T  # (R,) each
    return percentile_interval(ratio(wrong, above)), percentile_interval(ratio(above, total))
