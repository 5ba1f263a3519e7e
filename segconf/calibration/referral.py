"""Referral: which cases an expert has to see.

There is one rule. Of the scores of a case, the one that ordered the validation cases best by their
Dice decides: a case whose score is below a threshold is referred. The threshold spends a *budget*,
the fraction of ordinary images that may be referred; part of it is reserved for images that are
ordinary and yet out of distribution to the detector. A *target*, the mean Dice of what is not
referred, does not move the threshold: it says whether the budget is enough, and which budget would
be. So nobody is flooded with referrals by a target that the network cannot reach, and the worst
cases are still seen where the mean Dice is fine already.

The flags of `predict`, the review page and `triage` all follow this rule. Beside it, a case gets a
note where one of its numbers is beyond what few validation cases had; notes refer nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.calibration.stored import EMPTY_SCORE
from segconf.metrics.bootstrap import draw_units, mean_interval, percentile_interval
from segconf.metrics.selective import harmonic_difference

SCORES = (
    "expected_dice",
    "mean_confidence",
    "border_confidence",
    "patch_confidence",
    "foreground_confidence",
)
"""Columns of `cases.csv` that say how good a case probably is, high = good."""


NOTED = {"expected_dice": False, "border_confidence": False, "shaded_fraction": True}
"""Columns of `cases.csv` that can be noted, and whether high values are."""
NOTE_FRACTION = 0.05
"""Largest fraction of the validation cases that have a note for one column."""

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Referral:
    """Cases to refer so that the mean quality of the others reaches a target.

    Attributes:
        referred: number of cases with the lowest scores.
        fraction: the same as a fraction of all cases.
        threshold: score of the worst case that is kept; infinite when none is kept.
        kept_quality: mean quality of the kept cases; nan when none is kept.
    """

    referred: int
    fraction: float
    threshold: float
    kept_quality: float


def image_risk_curve(score: NDArray[Any], risk: NDArray[Any]) -> Floats:
    """Mean risk of the k best-scored images for k = 1 .. N; tied images share their mean risk.

    Args:
        score: (N,) high = good.
        risk: (N,) such as 1 - Dice.
    """
    _, group, size = np.unique(-np.asarray(score), return_inverse=True, return_counts=True)
    expected = (np.bincount(group, risk) / size)[np.sort(group)]  # (N,) risk of each place
    return np.cumsum(expected) / np.arange(1, len(expected) + 1)


def image_aurc(score: NDArray[Any], risk: NDArray[Any], weights: NDArray[Any] | None = None) -> Any:
    """Mean of `image_risk_curve`, for resampled images all at once.

    Args:
        score: (N,) high = good.
        risk: (N,).
        weights: (R, N) how often each image was drawn; every image once when not given.

    Returns:
        (R,) areas; a number without weights.
    """
    drawn = np.ones((1, len(score))) if weights is None else np.asarray(weights, np.float64)
    order = np.argsort(-np.asarray(score), kind="stable")  # (N,) best first
    ranked = np.asarray(score)[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))  # (G,) of each group
    size = np.add.reduceat(drawn[:, order], first, axis=1)  # (R, G) images of each group
    total = np.add.reduceat((drawn * risk)[:, order], first, axis=1)  # (R, G) their risk
    before, risk_before = np.cumsum(size, axis=1) - size, np.cumsum(total, axis=1) - total
    mean = total / np.maximum(size, 1)
    # In a group of g images with mean risk w after n images with risk e, the j-th place has the
    # risk (e + j w) / (n + j) = w + (e - n w) / (n + j).
    area = size * mean + (risk_before - before * mean) * harmonic_difference(before, size)
    areas = area.sum(axis=1) / size.sum(axis=1)
    return float(areas[0]) if weights is None else areas


def aurc_interval(
    score: NDArray[Any],
    risk: NDArray[Any],
    groups: Sequence[str],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[float, float]:
    """95% percentile interval of `image_aurc` over resampled groups of images."""
    generator = torch.Generator().manual_seed(seed)
    weights = draw_units(groups, generator, resamples=resamples)  # (R, N)
    return percentile_interval(image_aurc(score, risk, weights))


def cases_to_refer(score: NDArray[Any], quality: NDArray[Any], target: float) -> Referral:
    """Fewest cases to refer, lowest scores first, so that the others have a mean quality.

    Cases with equal scores are referred together. Where even the best-scored case is not good
    enough, all are referred.

    Args:
        score: (N,) high = good.
        quality: (N,) such as Dice.
        target: mean quality that the kept cases must reach.
    """
    values, group, size = np.unique(score, return_inverse=True, return_counts=True)
    total = np.bincount(group, quality)
    kept = np.cumsum(size[::-1])[::-1]  # (G,) cases with this score or a higher one
    mean = np.cumsum(total[::-1])[::-1] / kept
    reached = np.flatnonzero(mean >= target)
    count = len(group)
    if reached.size == 0:
        return Referral(count, 1.0, float("inf"), float("nan"))
    first = reached[0]
    referred = count - int(kept[first])
    return Referral(referred, referred / count, float(values[first]), float(mean[first]))


class ScoredCase(Protocol):
    """A row of `cases.csv`."""

    @property
    def expected_dice(self) -> float:
        """Like all columns of `SCORES`, nan where it is not defined."""

    @property
    def foreground_fraction(self) -> float:
        """Of the pixels; 0 where nothing was found."""


def scores_of(rows: Sequence[ScoredCase], name: str) -> Floats:
    """(N,) values of a score; `EMPTY_SCORE` where nothing was found or it is not defined."""
    values = np.array([getattr(row, name) for row in rows], np.float64)
    nothing = np.array([row.foreground_fraction == 0 for row in rows], bool)
    return np.where(np.isnan(values) | nothing, EMPTY_SCORE, values)


def limit_within(score: NDArray[Any], fraction: float) -> float:
    """Largest of the scores (N,) with at most this fraction of the scores below it."""
    allowed = int(fraction * len(score) + 1e-9)  # 0.15 * 20 is 3, not 2.9999999999999996
    return float(np.sort(score)[min(allowed, len(score) - 1)])


@dataclass(frozen=True, slots=True)
class ReferralFit:
    """The score that orders validation cases best, and its threshold for a budget.

    Attributes:
        score: one of `SCORES`.
        threshold: cases below are referred.
        fraction: of the validation cases that are referred.
        kept_dice: mean Dice of the others.
        interval: of that mean, 95% over resampled groups of images.
        target_fraction: fewest cases to refer for the target, as a fraction; 1 = never reached.
    """

    score: str
    threshold: float
    fraction: float
    kept_dice: float
    interval: tuple[float, float]
    target_fraction: float


def fit_referral(
    rows: Sequence[ScoredCase],
    dice: Floats,
    target_dice: float,
    *,
    budget: float,
    groups: Sequence[str],
) -> ReferralFit:
    """Choose the score with the smallest image-level AURC, and its threshold for the budget.

    Args:
        rows: validation cases, as `predict` would write them: one for a whole volume.
        dice: (N,) that they reached.
        target_dice: mean Dice that the cases which are not referred should have.
        budget: largest fraction of the cases that may be referred.
        groups: of the cases.
    """
    risk = 1 - dice
    best = min(SCORES, key=lambda name: image_aurc(scores_of(rows, name), risk))
    score = scores_of(rows, best)
    threshold = limit_within(score, budget)
    kept = score >= threshold  # (N,) never empty: the threshold is one of the scores
    weights = draw_units(groups, torch.Generator().manual_seed(0))[:, kept]  # (R, kept)
    return ReferralFit(
        score=best,
        threshold=threshold,
        fraction=float(1 - kept.mean()),
        kept_dice=float(dice[kept].mean()),
        interval=mean_interval(dice[kept], weights),
        target_fraction=cases_to_refer(score, dice, target_dice).fraction,
    )


@dataclass(frozen=True, slots=True)
class NoteLimit:
    """Beyond the limit a column of `cases.csv` is noted, as it was for a fraction of the cases."""

    column: str
    limit: float
    high: bool
    fraction: float


def fit_notes(rows: Sequence[ScoredCase]) -> list[NoteLimit]:
    """Limits that at most `NOTE_FRACTION` of the validation cases are beyond, column by column."""
    found = []
    for column, high in NOTED.items():
        values = np.array([getattr(row, column) for row in rows], np.float64)
        badness = -values[~np.isnan(values)] if high else values[~np.isnan(values)]
        if badness.size:
            limit = limit_within(badness, NOTE_FRACTION)
            beyond = float((badness < limit).sum() / len(rows))
            found.append(NoteLimit(column, -limit if high else limit, high, beyond))
    return found
