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

from segconf.metrics.ranking import Groups

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
    share = wrong / np.maximum(size, 1)
    excess = errors_before - pixels_before * share
    risk = wrong + excess * harmonic_difference(pixels_before, size)
    if total is None:
        total = (correct.sum(axis=-1, keepdims=True), wrong.sum(axis=-1, keepdims=True))
    pixels_left = np.maximum(total[0] + total[1] - pixels_before, 1)
    precision = wrong * ((total[1] - errors_before) / pixels_left)
    trapezoids = size * (errors_before + wrong / 2)
    return RankingSums(risk.sum(axis=-1), trapezoids.sum(axis=-1), precision.sum(axis=-1))


def ranking_metrics(blocks: Iterable[Groups], correct: int, wrong: int) -> dict[str, float]:
    """AURC, AUGRC, FPR-95 and AUPR-error of a stream of groups.

    - ``aurc``: mean of the expected risks at coverage 1/m, 2/m, ..., 1.
    - ``augrc``: area (trapezoids, from the origin) under errors/m over coverage, which equals
      ``(1 - AUROC) a (1 - a) + (1 - a)^2 / 2`` at accuracy a.
    - ``fpr95``: share of wrong pixels accepted at the threshold that accepts nearest to 0.95 of the
      right ones, the stricter of two equally near; nan without right or without wrong pixels.
    - ``aupr_error``: average precision of "is wrong" ranked by low confidence; nan without errors.

    Args:
        blocks: groups by descending confidence, together all pixels.
        correct: right pixels in all groups.
        wrong: wrong pixels in all groups.
    """
    seen = (0, 0)
    sums: list[RankingSums] = []
    nearest, fpr = math.inf, math.nan
    for block in blocks:
        sums.append(ranking_sums(block.correct, block.wrong, seen, (correct, wrong)))
        if correct and wrong:
            accepted = seen[0] + np.cumsum(block.correct)
            distance = np.abs(accepted / correct - RECALL_OF_FPR)
            best = int(distance.argmin())
            if distance[best] < nearest:
                nearest = float(distance[best])
                fpr = (seen[1] + int(block.wrong[: best + 1].sum())) / wrong
        seen = (seen[0] + int(block.correct.sum()), seen[1] + int(block.wrong.sum()))
    pixels = correct + wrong
    if seen != (correct, wrong):
        raise ValueError(f"groups hold {seen} right and wrong pixels, not {(correct, wrong)}")
    if pixels == 0:
        return dict.fromkeys(("aurc", "augrc", "fpr95", "aupr_error"), math.nan)
    return {
        "aurc": math.fsum(part.risk for part in sums) / pixels,
        "augrc": math.fsum(part.errors for part in sums) / pixels / pixels,
        "fpr95": fpr,
        "aupr_error": math.fsum(part.precision for part in sums) / wrong if wrong else math.nan,
    }


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
