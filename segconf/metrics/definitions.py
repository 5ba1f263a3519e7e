"""Every metric, declared once: its name and words, its scale, and how it follows from counts.

To add a metric, add one declaration: `ConfidenceMetrics.compute`, the bootstrap, `metrics.json` and
all tables read them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segconf.metrics.overlap import mean_iou
from segconf.metrics.reliability import expected_calibration_error
from segconf.metrics.selective import (
    RankingTotals,
    augrc,
    aurc,
    closed_form_optimal_aurc,
    error_precision,
    false_positive_rate,
    optimal_aurc,
    ratio,
)

Floats: TypeAlias = NDArray[np.float64]
Protocol: TypeAlias = Literal["strict", "paper"]

PROTOCOLS: dict[Protocol, str] = {
    "strict": "ranked by the log-odds of the confidence; exact finite optimum",
    "paper": "ranked by the confidence in float32; closed-form optimum",
}


@dataclass(frozen=True, slots=True)
class Totals:
    """What all pixels add up to; every metric is a function of it.

    Fields are numbers for one set of pixels, and have a leading axis (R,) for R resamples.
    """

    ranking: RankingTotals
    confusion: NDArray[Any]  # (..., K, K) pixels with label (row) and prediction (column)
    calibration_gap: Floats  # (..., ECE bins) right pixels minus sum of confidences
    nll: Floats  # sum over pixels
    brier: Floats  # sum over pixels
    protocol: Protocol

    @property
    def optimal_aurc(self) -> Floats:
        """Smallest AURC at this accuracy, by the formula of the protocol."""
        optimum = optimal_aurc if self.protocol == "strict" else closed_form_optimal_aurc
        return optimum(self.ranking.correct, self.ranking.wrong)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: key in `compute` and in `metrics.json`.
        title: its name in tables and plots.
        definition: what it is, in one sentence.
        value: from the totals to the raw value; nan where it is not defined.
        exponent: power of ten by which tables scale the raw value.
        higher_is_better: or lower.
        in_reports: whether the table of an evaluation shows it.
        in_comparisons: whether the table of several runs shows it.
    """

    name: str
    title: str
    definition: str
    value: Callable[[Totals], Floats]
    exponent: int = 0
    higher_is_better: bool = False
    in_reports: bool = True
    in_comparisons: bool = True

    @property
    def scale(self) -> float:
        """Factor from the raw value to that in tables."""
        return float(10**self.exponent)

    @property
    def heading(self) -> str:
        """Title with its scale, such as `AURC x10^3`."""
        return self.title + {0: "", 1: " x10"}.get(self.exponent, f" x10^{self.exponent}")

    @property
    def better(self) -> str:
        """The direction in a word."""
        return "higher" if self.higher_is_better else "lower"


_DECLARED = (
    Metric(
        name="miou",
        title="mIoU",
        definition="mean over the classes of the IoU pooled over all pixels",
        value=lambda totals: mean_iou(totals.confusion),
        higher_is_better=True,
    ),
    Metric(
        name="accuracy",
        title="accuracy",
        definition="fraction of right pixels",
        value=lambda totals: ratio(totals.ranking.correct, totals.ranking.pixels),
        higher_is_better=True,
        in_reports=False,
        in_comparisons=False,
    ),
    Metric(
        name="aurc",
        title="AURC",
        definition="mean of the selective risks at coverage 1/m .. 1, tied pixels share the "
        "expected risk",
        value=lambda totals: aurc(totals.ranking),
        exponent=3,
    ),
    Metric(
        name="eaurc",
        title="E-AURC",
        definition="AURC minus the optimum for the same accuracy",
        value=lambda totals: aurc(totals.ranking) - totals.optimal_aurc,
        exponent=3,
    ),
    Metric(
        name="augrc",
        title="AUGRC",
        definition="area under the generalised risk-coverage curve",
        value=lambda totals: augrc(totals.ranking),
        exponent=3,
        in_comparisons=False,
    ),
    Metric(
        name="fpr95",
        title="FPR-95",
        definition="false positive rate where the true positive rate is nearest 0.95, "
        "positive = right",
        value=lambda totals: false_positive_rate(totals.ranking),
        exponent=2,
    ),
    Metric(
        name="aupr_error",
        title="AUPR-error",
        definition="average precision of being wrong, ranked by low confidence",
        value=lambda totals: error_precision(totals.ranking),
        exponent=2,
        higher_is_better=True,
        in_comparisons=False,
    ),
    Metric(
        name="ece",
        title="ECE",
        definition="top-label expected calibration error, 15 equal-width bins (lo, hi], pooled",
        value=lambda totals: expected_calibration_error(
            totals.calibration_gap, totals.ranking.pixels
        ),
        exponent=2,
    ),
    Metric(
        name="nll",
        title="NLL",
        definition="mean negative log likelihood, natural logarithm",
        value=lambda totals: ratio(totals.nll, totals.ranking.pixels),
        exponent=1,
    ),
    Metric(
        name="brier",
        title="Brier",
        definition="sum over the classes, mean over the pixels",
        value=lambda totals: ratio(totals.brier, totals.ranking.pixels),
        exponent=2,
    ),
)

METRICS = {metric.name: metric for metric in _DECLARED}
"""All metrics by name, in the order of tables."""


def reported_metrics(*, labels: bool) -> tuple[str, ...]:
    """Names in the table of an evaluation of masks or of labels."""
    return _of_task([m.name for m in METRICS.values() if m.in_reports], labels=labels)


def compared_metrics(*, labels: bool) -> tuple[str, ...]:
    """Names in the table of several runs."""
    return _of_task([m.name for m in METRICS.values() if m.in_comparisons], labels=labels)


def _of_task(names: Sequence[str], *, labels: bool) -> tuple[str, ...]:
    """Accuracy is to labels what the mIoU is to masks."""
    return tuple("accuracy" if labels and name == "miou" else name for name in names)


def all_values(totals: Totals) -> dict[str, Floats]:
    """The raw value of every metric."""
    return {name: metric.value(totals) for name, metric in METRICS.items()}


def heading(metric: str) -> str:
    """Title with its scale, such as `AURC x10^3`."""
    return METRICS[metric].heading


def scaled(value: float, metric: str) -> str:
    """A raw value in the scale of the table."""
    exponent = METRICS[metric].exponent
    return f"{value * 10**exponent:.{2 if exponent else 3}f}"
