"""The confidence above which the pixels of a run can be believed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from segconf.metrics.bootstrap import draw_units, percentile_interval
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.streaming import ConfidenceMetrics


@dataclass(frozen=True, slots=True)
class Threshold:
    """Fitted on validation images; `predict` refers pixels below it to the reader."""

    threshold: float
    max_risk: float
    risk: float
    """Share of wrong pixels among those at or above the threshold."""
    coverage: float
    """Share of pixels at or above the threshold."""
    coverage_interval: tuple[float, float]
    """95%, over resampled images."""
    right_below: float
    """Share of right pixels among those below the threshold; nan where there are none."""

    def as_json(self) -> dict[str, object]:
        """Content of `calibration.json`; null where there is no pixel below."""
        below = None if np.isnan(self.right_below) else self.right_below
        return {
            "threshold": self.threshold,
            "max_risk": self.max_risk,
            "risk": self.risk,
            "coverage": self.coverage,
            "coverage_interval": list(self.coverage_interval),
            "right_below": below,
        }


def fit_threshold(
    pooled: ConfidenceMetrics, images: Sequence[ImageSummary], max_risk: float, *, seed: int = 0
) -> Threshold:
    """Lowest confidence at or above which at most `max_risk` of the validation pixels are wrong.

    Args:
        pooled: all validation pixels.
        images: the same pixels as one summary per image.
        max_risk: fraction of wrong pixels that is tolerated.
        seed: of the resampled images.
    """
    found = pooled.threshold_for_risk(max_risk)
    pixels = pooled.pixels
    right = float(pooled.confusion.trace())
    above = found.coverage * pixels
    right_above = above * (1 - found.risk) if above else 0.0
    below = pixels - above
    return Threshold(
        threshold=min(found.confidence, 1.0),
        max_risk=max_risk,
        risk=found.risk,
        coverage=found.coverage,
        coverage_interval=_coverage_interval(images, found.log_odds, seed),
        right_below=(right - right_above) / below if below else float("nan"),
    )


def _coverage_interval(
    images: Sequence[ImageSummary], log_odds: float, seed: int
) -> tuple[float, float]:
    """95% percentiles of the coverage at a fixed threshold over resampled images."""
    counts = np.array([image.pixels_above(log_odds) for image in images])  # (I, 2)
    weights = draw_units(len(images), torch.Generator().manual_seed(seed))  # (R, I)
    above, total = (weights @ counts).T  # (R,), (R,)
    return percentile_interval(above / total)
