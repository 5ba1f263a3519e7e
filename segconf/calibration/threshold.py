"""The confidence above which the pixels of a run can be believed."""

from dataclasses import dataclass

import numpy as np

from segconf.evaluation.evaluator import Judge

RESAMPLES = 1000


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


def fit_threshold(judge: Judge, max_risk: float, *, seed: int = 0) -> Threshold:
    """Lowest confidence at or above which at most `max_risk` of the validation pixels are wrong."""
    pooled = judge.pooled["all"]
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
        coverage_interval=_coverage_interval(judge, found.log_odds, seed),
        right_below=(right - right_above) / below if below else float("nan"),
    )


def _coverage_interval(judge: Judge, log_odds: float, seed: int) -> tuple[float, float]:
    """Percentiles of the coverage at a fixed threshold over resampled images."""
    counts = np.array([summary.pixels_above(log_odds) for summary in judge.summaries])  # (I, 2)
    generator = np.random.default_rng(seed)
    picks = generator.integers(len(counts), size=(RESAMPLES, len(counts)))
    above, total = counts[picks].sum(axis=1).T  # (R,), (R,)
    low, high = np.quantile(above / total, [0.025, 0.975])
    return float(low), float(high)
