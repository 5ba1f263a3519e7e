"""Selective prediction: how much risk is left when the least confident pixels are refused.

All functions take counts of right and wrong pixels of groups with equal confidence, by descending
confidence. Within a group the order is unknown, so its pixels share the expected risk.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segconf.metrics.ranking_histogram import Groups

Floats: TypeAlias = NDArray[np.float64]

RECALL_OF_FPR = 0.95
_SMALL = 32
_HARMONIC = np.append(0.0, np.cumsum(1.0 / np.arange(1, _SMALL + 1)))  # H(0), ..., H(32)


def harmonic_difference(start: NDArray[Any], count: NDArray[Any]) -> Floats:
    """``H(start + count) - H(start)`` of harmonic numbers, without cancellation.

    A table up to H(32); beyond, ``H(n) = log(x) + 1/(24 x^2) - 7/(960 x^4) + ... + gamma`` with
    ``x = n + 1/2``, whose first omitted term is below 1e-17.
    """
    if np.all(start >= _SMALL):
        return _smooth_difference(start + 0.5, count)
    in_table = np.clip(_SMALL - start, 0, count)
    upper = np.minimum(start + in_table, _SMALL).astype(np.int64)
    lower = np.minimum(start, _SMALL).astype(np.int64)
    smooth = _smooth_difference(start + in_table + 0.5, count - in_table)
    return np.asarray(_HARMONIC[upper] - _HARMONIC[lower] + smooth, np.float64)


def _smooth_difference(x: Floats, count: NDArray[Any]) -> Floats:
    return np.log1p(count / x) + _harmonic_tail(x + count) - _harmonic_tail(x)


def _harmonic_tail(x: Floats) -> Floats:
    y = 1 / (x * x)
    return y * (1 / 24 - y * (7 / 960 - y * (31 / 8064 - y * (127 / 30720))))


def auroc(score: NDArray[Any], positive: NDArray[np.bool_]) -> float:
    """Probability that a positive one scores higher than a negative one; ties count half.

    Args:
        score: (N,).
        positive: (N,).

    Returns:
        nan where one of both kinds is missing.
    """
    positives, negatives = int(positive.sum()), int((~positive).sum())
    if not positives or not negatives:
        return math.nan
    _, group = np.unique(score, return_inverse=True)
    own = np.bincount(group[positive], minlength=int(group.max()) + 1)  # (G,)
    others = np.bincount(group[~positive], minlength=len(own))  # (G,)
    below = np.cumsum(others) - others / 2  # (G,) with a lower score, and half of those with it
    return float(own @ below / (positives * negatives))


@dataclass(frozen=True, slots=True)
class RankingSums:
    """Sums over groups, each (...,) for counts (..., G)."""

    risk: Floats  # of the selective risks, over pixels
    errors: Floats  # trapezoids under the number of selected errors
    precision: Floats  # of wrong pixels times precision of "is wrong" at their confidence


def ranking_sums(
    correct: NDArray[Any],
    wrong: NDArray[Any],
    before: tuple[int, int] = (0, 0),
    total: tuple[Any, Any] | None = None,
) -> RankingSums:
    """Sums from which AURC, AUGRC and average precision follow.

    In a group of g pixels with w errors, after n pixels with e errors, the expected risk at the
    j-th is ``(e + j w/g) / (n + j) = w/g + (e - n w/g) / (n + j)``, and its sum over the group is
    ``w + (e - n w/g) (H(n + g) - H(n))``.

    Args:
        correct: (..., G) right pixels per group; empty groups are allowed.
        wrong: (..., G) wrong pixels per group.
        before: right and wrong pixels of all groups above the first one.
        total: right and wrong pixels of all groups; by default the sums over these.
    """
    size = correct + wrong
    errors_before = before[1] + np.cumsum(wrong, axis=-1) - wrong
    pixels_before = sum(before) + np.cumsum(size, axis=-1) - size
    rate = wrong / np.maximum(size, 1)
    excess = errors_before - pixels_before * rate
    risk = wrong + excess * harmonic_difference(pixels_before, size)
    if total is None:
        total = (correct.sum(axis=-1, keepdims=True), wrong.sum(axis=-1, keepdims=True))
    pixels_left = np.maximum(total[0] + total[1] - pixels_before, 1)
    precision = wrong * ((total[1] - errors_before) / pixels_left)
    trapezoids = size * (errors_before + wrong / 2)
    return RankingSums(risk.sum(axis=-1), trapezoids.sum(axis=-1), precision.sum(axis=-1))


@dataclass(frozen=True, slots=True)
class RankingTotals:
    """What all pixels, ranked by confidence, add up to: numbers, or (R,) arrays over resamples."""

    correct: NDArray[Any]  # pixels
    wrong: NDArray[Any]  # pixels
    risk: Floats  # as in RankingSums
    errors: Floats
    precision: Floats
    accepted_errors: Floats  # wrong pixels accepted with 0.95 of the right ones; nan without either

    @property
    def pixels(self) -> NDArray[Any]:
        """Right and wrong pixels."""
        return np.asarray(self.correct + self.wrong)


def ranking_totals(blocks: Iterable[Groups], correct: int, wrong: int) -> RankingTotals:
    """Totals of a stream of groups.

    Errors are accepted at the threshold that accepts nearest to 0.95 of the right pixels, the
    stricter of two equally near.

    Args:
        blocks: groups by descending confidence, together all pixels.
        correct: right pixels in all groups.
        wrong: wrong pixels in all groups.
    """
    seen = (0, 0)
    sums: list[RankingSums] = []
    nearest, accepted_errors = math.inf, math.nan
    for block in blocks:
        sums.append(ranking_sums(block.correct, block.wrong, seen, (correct, wrong)))
        if correct and wrong:
            accepted = seen[0] + np.cumsum(block.correct)
            distance = np.abs(accepted / correct - RECALL_OF_FPR)
            best = int(distance.argmin())
            if distance[best] < nearest:
                nearest = float(distance[best])
                accepted_errors = seen[1] + int(block.wrong[: best + 1].sum())
        seen = (seen[0] + int(block.correct.sum()), seen[1] + int(block.wrong.sum()))
    if seen != (correct, wrong):
        raise ValueError(f"groups hold {seen} right and wrong pixels, not {(correct, wrong)}")
    return RankingTotals(
        correct=np.array(correct),
        wrong=np.array(wrong),
        risk=np.array(math.fsum(part.risk for part in sums)),
        errors=np.array(math.fsum(part.errors for part in sums)),
        precision=np.array(math.fsum(part.precision for part in sums)),
        accepted_errors=np.array(accepted_errors, np.float64),
    )


def ratio(total: NDArray[Any], count: NDArray[Any]) -> Floats:
    """A total divided by a count; nan where the count is zero."""
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def aurc(ranking: RankingTotals) -> Floats:
    """Mean of the expected risks at coverage 1/m, 2/m, ..., 1; nan without pixels."""
    return ratio(ranking.risk, ranking.pixels)


def augrc(ranking: RankingTotals) -> Floats:
    """Area (trapezoids, from the origin) under errors/m over coverage; nan without pixels.

    It equals ``(1 - AUROC) a (1 - a) + (1 - a)^2 / 2`` at accuracy a.
    """
    return ratio(ratio(ranking.errors, ranking.pixels), ranking.pixels)


def false_positive_rate(ranking: RankingTotals) -> Floats:
    """Fraction of the wrong pixels that is accepted with 0.95 of the right ones; nan without."""
    return ratio(ranking.accepted_errors, ranking.wrong)


def error_precision(ranking: RankingTotals) -> Floats:
    """Average precision of "is wrong" ranked by low confidence; nan without errors."""
    return ratio(ranking.precision, ranking.wrong)


def aurc_bounds(blocks: Iterable[Groups], correct: int, wrong: int) -> tuple[float, float]:
    """Smallest and largest AURC over all orders of tied pixels.

    Maps of few levels tie pixels that the network told apart. Its true AURC lies between the one
    with the right pixels of every level first and the one with the wrong pixels first.

    Args:
        blocks: as in `ranking_totals`.
        correct: right pixels in all groups.
        wrong: wrong pixels in all groups.
    """
    right_first: list[float] = []
    wrong_first: list[float] = []
    pixels = (0, 0)
    for block in blocks:
        nothing = np.zeros_like(block.correct)
        halves = [(block.correct, nothing), (nothing, block.wrong)]
        for risks, order in ((right_first, halves), (wrong_first, halves[::-1])):
            right, missed = (
                np.stack(column, axis=1).ravel() for column in zip(*order, strict=True)
            )
            risks.append(float(ranking_sums(right, missed, pixels, (correct, wrong)).risk))
        pixels = (pixels[0] + int(block.correct.sum()), pixels[1] + int(block.wrong.sum()))
    count = correct + wrong
    if count == 0:
        return math.nan, math.nan
    return math.fsum(right_first) / count, math.fsum(wrong_first) / count


def optimal_aurc(correct: NDArray[Any], wrong: NDArray[Any]) -> Floats:
    """Smallest AURC at this accuracy, all errors last: ``(w - c (H(m) - H(c))) / m``."""
    pixels = correct + wrong
    area = wrong - correct * harmonic_difference(correct, wrong)
    return np.where(pixels > 0, area / np.maximum(pixels, 1), np.nan)


def closed_form_optimal_aurc(correct: NDArray[Any], wrong: NDArray[Any]) -> Floats:
    """Limit of the smallest AURC for many pixels with error rate r: ``r + (1 - r) log(1 - r)``."""
    pixels = np.maximum(correct + wrong, 1)
    accuracy = correct / pixels
    entropy = accuracy * np.log(np.where(correct > 0, accuracy, 1.0))
    return np.where(correct + wrong > 0, wrong / pixels + entropy, np.nan)
