"""Intervals by resampling whole groups, because what belongs together is not independent.

A group holds the images of a patient, say; an image without any other is a group of its own.

`draw_units` and `percentile_interval` are the bootstrap of every interval in segconf.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.metrics.definitions import Protocol, Totals, all_values
from segconf.metrics.image_summary import ImageSummary, StackedSummaries, stack_summaries
from segconf.metrics.selective import RECALL_OF_FPR, RankingTotals, ranking_sums

Floats: TypeAlias = NDArray[np.float64]

RESAMPLES = 1000
LEVEL = 0.95
_BLOCK = 64  # resamples computed together


def resampled_unit(groups: Sequence[str]) -> str:
    """What is resampled, in a word: groups where some hold several images, else images."""
    return "images" if len(set(groups)) == len(groups) else "groups"


def group_numbers(groups: Sequence[str]) -> NDArray[np.int64]:
    """(I,) number of the group of each image, counted in the order in which they first occur."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    return np.array([numbers[name] for name in groups], np.int64)


def draw_units(
    groups: Sequence[str], generator: torch.Generator, *, resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """(R, I) how often each of I images is drawn, together with all others of its group.

    Every resample draws as many groups as there are, with replacement.

    Args:
        groups: the group of each image.
        generator: source of the draws; an equal one gives equal draws.
        resamples: number of resamples R.
    """
    if not groups:
        raise ValueError("there is no image to resample")
    numbers = group_numbers(groups)
    count = int(numbers.max()) + 1
    picks = torch.randint(count, (resamples, count), generator=generator)  # (R, G)
    weights = torch.zeros(resamples, count, dtype=torch.float64)
    weights.scatter_add_(1, picks, torch.ones_like(picks, dtype=torch.float64))
    return weights.numpy()[:, numbers]


def mean_interval(values: Floats, weights: Floats, *, level: float = LEVEL) -> tuple[float, float]:
    """Percentile interval of the mean over images; those whose value is nan are left out.

    Args:
        values: (I,) such as the Dice of each image.
        weights: (R, I) from `draw_units`.
        level: fraction of the resamples inside the interval.
    """
    known = ~np.isnan(values)
    drawn = weights[:, known]
    count = drawn.sum(axis=1)
    some = count > 0
    return percentile_interval(drawn[some] @ values[known] / count[some], level=level)


def percentile_interval(values: Floats, *, level: float = LEVEL) -> tuple[float, float]:
    """Central interval of the resampled values that are defined; nan if none is.

    Bounds are values that occurred: between a finite and an infinite value there is no other.

    Args:
        values: (R,) values of the resamples; nan where one is not defined.
        level: fraction of the resamples inside the interval.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    defined = values[~np.isnan(values)]
    if defined.size == 0:
        return math.nan, math.nan
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def bootstrap_metrics(
    images: Sequence[ImageSummary],
    generator: torch.Generator,
    *,
    groups: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
    protocol: Protocol = "strict",
) -> dict[str, tuple[float, float]]:
    """Percentile interval of each metric of ``ConfidenceMetrics.compute`` over groups of images.

    Every resample draws as many groups as there are, with replacement, and pools their pixels.
    A resample in which a metric is not defined does not count for it; nan if there is no other.

    Args:
        images: one summary per image.
        groups: the group of each image; each on its own when not given.
        generator: source of the draws; an equal one gives equal intervals.
        resamples: number of draws.
        level: fraction of the resamples inside the interval.
        protocol: as in ``ConfidenceMetrics.compute``.
    """
    weights = draw_units(groups or _alone(len(images)), generator, resamples=resamples)  # (R, I)
    values = _resampled(stack_summaries(images, protocol), weights)
    return {name: percentile_interval(value, level=level) for name, value in values.items()}


def bootstrap_differences(
    runs: Sequence[Sequence[ImageSummary]],
    baseline: Sequence[Sequence[ImageSummary]],
    generator: torch.Generator,
    *,
    groups: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    protocol: Protocol = "strict",
) -> dict[str, tuple[float, float]]:
    """Interval of mean metric minus mean metric of the baseline, on the same groups each time.

    Both sides are runs (such as seeds of one method) over the same images in the same order; a
    metric is averaged over the runs of a side. The rest is as in ``bootstrap_metrics``.
    """
    counts = {len(images) for images in (*runs, *baseline)}
    if len(counts) != 1:
        raise ValueError(f"runs over {sorted(counts)} images cannot be paired")
    units = groups or _alone(counts.pop())
    weights = draw_units(units, generator, resamples=resamples)  # (R, I)
    ours, theirs = (_mean_resampled(side, weights, protocol) for side in (runs, baseline))
    return {name: percentile_interval(ours[name] - theirs[name]) for name in ours}


def _alone(count: int) -> list[str]:
    """Every image as a group of its own."""
    return [str(number) for number in range(count)]


def _mean_resampled(
    runs: Sequence[Sequence[ImageSummary]], weights: Floats, protocol: Protocol
) -> dict[str, Floats]:
    """(R,) values of each metric, averaged over runs."""
    values = [_resampled(stack_summaries(images, protocol), weights) for images in runs]
    return {name: np.mean([value[name] for value in values], axis=0) for name in values[0]}


def _resampled(stack: StackedSummaries, weights: Floats) -> dict[str, Floats]:
    """(R,) values of each metric."""
    parts = [
        all_values(_totals(stack, weights[start : start + _BLOCK]))
        for start in range(0, len(weights), _BLOCK)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _totals(stack: StackedSummaries, weights: Floats) -> Totals:
    """What the pixels of each resample add up to."""
    right, wrong = weights @ stack.correct, weights @ stack.wrong  # (R, G), (R, G)
    ranked, sums = ranking_sums(right, wrong), _weighted(weights, stack.sums)
    classes = math.isqrt(stack.confusion.shape[1])
    return Totals(
        ranking=RankingTotals(
            correct=right.sum(axis=1),
            wrong=wrong.sum(axis=1),
            risk=ranked.risk,
            errors=ranked.errors,
            precision=ranked.precision,
            accepted_errors=_accepted_errors(right, wrong),
        ),
        confusion=(weights @ stack.confusion).reshape(-1, classes, classes),
        calibration_gap=sums[:, :-2],
        nll=sums[:, -2],
        brier=sums[:, -1],
        protocol=stack.protocol,
    )


def _weighted(weights: Floats, sums: Floats) -> Floats:
    """Weighted sums in which an infinite term counts only where it was drawn."""
    infinite = np.isinf(sums)
    total = weights @ np.where(infinite, 0.0, sums)
    return np.where(weights @ infinite > 0, np.inf, total)


def _accepted_errors(right: Floats, wrong: Floats) -> Floats:
    """Errors accepted at a recall of 0.95, interpolated: the coarse groups are not real ties."""
    errors = np.full(len(right), np.nan)
    for index, (hits, misses) in enumerate(zip(right, wrong, strict=True)):
        recall, accepted = np.cumsum(hits), np.cumsum(misses)
        if hits.any() and misses.any():
            target = RECALL_OF_FPR * recall[-1]
            errors[index] = np.interp(target, np.append(0, recall), np.append(0, accepted))
    return errors
