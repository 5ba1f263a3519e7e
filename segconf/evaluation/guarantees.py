"""What the guarantees of a run promise, and what is kept on the images of a split."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from segconf.calibration.conformal import Counts, Floats, Kind, areas, fractions, level_of
from segconf.calibration.referral_guarantee import UNDEFINED
from segconf.calibration.stored import (
    StoredContour,
    StoredContourCurve,
    StoredReferralGuarantee,
    StoredThreshold,
)
from segconf.evaluation.evaluator import CaseScores
from segconf.metrics.bootstrap import draw_units, group_numbers, mean_interval
from segconf.metrics.selective import ratio
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.plots.promised_and_kept import KeptPoint


@dataclass(frozen=True, slots=True)
class KeptGuarantee:
    """What a contour promises and keeps.

    Attributes:
        kind: outer or inner.
        class_index: the class that it surrounds.
        alpha: the loss that is promised.
        measured: mean loss of the groups; nan where no group has the class.
        low: lower end of its 95% interval over resampled groups.
        high: upper end.
        band_fraction: area between the inner and the outer contour of this alpha as a fraction of
            the true area, over all groups; nan where one of the two is missing.
    """

    kind: Kind
    class_index: int
    alpha: float
    measured: float
    low: float
    high: float
    band_fraction: float

    def plain(self) -> dict[str, object]:
        """As `metrics.json` holds it."""
        values = {name: getattr(self, name) for name in ("measured", "low", "high")}
        return {
            "kind": self.kind,
            "class": self.class_index,
            "alpha": self.alpha,
            **values,
            "band_fraction": self.band_fraction,
        }


@dataclass(frozen=True, slots=True)
class KeptReferral:
    """What a referral with a guarantee promises and keeps.

    Attributes:
        target_dice: mean Dice that is promised for what is kept.
        delta: probability that the promise is wrong.
        kept_fraction: fraction of the annotated images that are kept.
        measured: mean Dice of the groups, of their kept images; nan where none is kept.
        low: lower end of its 95% interval over resampled groups.
        high: upper end.
    """

    target_dice: float
    delta: float
    kept_fraction: float
    measured: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class KeptRisk:
    """What the risk threshold of a run promises, and what it keeps on a split."""

    max_risk: float
    """Fraction of wrong pixels that is tolerated at or above the threshold."""
    confidence: float
    """The threshold."""
    coverage: float
    """Fraction of the pixels at or above the threshold."""
    risk: float
    """Fraction of wrong pixels among them; nan where there are none."""


def kept_risk(stored: StoredThreshold | None, pooled: ConfidenceMetrics) -> KeptRisk | None:
    """The stored threshold on the pixels of a split; None where the run has fitted none."""
    if stored is None:
        return None
    kept = pooled.selection_at(stored.confidence)
    return KeptRisk(stored.max_risk, stored.confidence, kept.coverage, kept.risk)


def kept_guarantees(pooled: Counts, contours: Sequence[StoredContour]) -> list[KeptGuarantee]:
    """Measure the contours that a run has.

    Args:
        pooled: (U, K - 1, 2, L + 1) counts of the groups of a split.
        contours: of the run; those without a threshold promise nothing and are left out.
    """
    found = []
    for contour in contours:
        if contour.threshold is None:
            continue
        counts = pooled[:, contour.class_index - 1]
        loss = fractions(counts, contour.kind)[:, level_of(contour.threshold)]  # (U,)
        mean, (low, high) = _mean_interval(loss)
        band = _band_fraction(counts, contour, contours)
        found.append(
            KeptGuarantee(contour.kind, contour.class_index, contour.alpha, mean, low, high, band)
        )
    return found


def kept_curves(pooled: Counts, curves: Sequence[StoredContourCurve]) -> dict[str, list[KeptPoint]]:
    """Promised and kept losses along the promises that a run has stored thresholds for, by name."""
    several = len({curve.class_index for curve in curves}) > 1
    found: dict[str, list[KeptPoint]] = {}
    for curve in curves:
        table = fractions(pooled[:, curve.class_index - 1], curve.kind)  # (U, L)
        loss = "lesion outside" if curve.kind == "outer" else "area that is not lesion"
        of_class = f" of class {curve.class_index}" if several else ""
        points = found.setdefault(f"{curve.kind} contour{of_class}: {loss}", [])
        for alpha, threshold in curve.points:
            mean, (low, high) = _mean_interval(table[:, level_of(threshold)])
            points.append(KeptPoint(alpha, mean, low, high))
    return found


def kept_referral(
    rule: StoredReferralGuarantee | None, rows: Sequence[CaseScores], scores: Sequence[float]
) -> KeptReferral | None:
    """Measure a referral with a guarantee; None where the run has none, or nothing is annotated.

    Args:
        rule: of the run.
        rows: the images. Those without an annotated pixel, whose mean confidence is nan, are left
            out; another Dice of nan, where mask and prediction are empty, counts as 1.
        scores: (N,) expected Dice of the images over all pixels, which `predict` refers by.
    """
    annotated = np.array([not math.isnan(row.mean_confidence) for row in rows], bool)  # (N,)
    if rule is None or rule.threshold is None or not annotated.any():
        return None
    score = np.asarray(scores)[annotated]  # (A,)
    rows = [row for row, known in zip(rows, annotated, strict=True) if known]
    dice = np.array([1.0 if math.isnan(row.dice) else row.dice for row in rows])
    # Nothing is expected of an empty mask: its score is 0, or nan.
    kept = np.where(score > 0, score, UNDEFINED) > rule.threshold  # (A,)
    member = group_numbers([row.group for row in rows])[kept]
    size, reached = np.bincount(member), np.bincount(member, dice[kept])
    mean, (low, high) = _mean_interval(reached[size > 0] / size[size > 0])
    return KeptReferral(rule.target_dice, rule.delta, float(kept.mean()), mean, low, high)


def _mean_interval(loss: Floats) -> tuple[float, tuple[float, float]]:
    """Mean of the units that have a loss, and its 95% interval over resampled units."""
    known = loss[~np.isnan(loss)]
    if known.size == 0:
        return math.nan, (math.nan, math.nan)
    units = [str(number) for number in range(len(known))]
    weights = draw_units(units, torch.Generator().manual_seed(0))  # (R, U)
    return float(known.mean()), mean_interval(known, weights)


def _band_fraction(
    counts: Counts, contour: StoredContour, contours: Sequence[StoredContour]
) -> float:
    """Area between the two contours of an alpha over the true area, from counts (U, 2, L + 1)."""
    sizes = {}
    outside, inside = areas(counts.sum(axis=0))  # (L,) each
    for other in contours:
        same = (other.class_index, other.alpha) == (contour.class_index, contour.alpha)
        if same and other.threshold is not None:
            level = level_of(other.threshold)
            sizes[other.kind] = outside[level] + inside[level]
    if len(sizes) < len(("outer", "inner")):
        return math.nan
    lesion = counts[:, 1].sum()
    return float(ratio(np.array(sizes["outer"] - sizes["inner"]), np.array(float(lesion))))
