"""Intervals by resampling whole groups, because what belongs together is not independent.

A group holds the images of a patient, say; an image without any other is a group of its own.
Differences between methods resample their seeds too: another training would give other weights.

`draw_units` and `percentile_interval` are the bootstrap of every interval in segconf.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.metrics.definitions import Protocol, Totals, all_values
from segconf.metrics.image_summary import ImageSummary, StackedSummaries, stack_summaries
from segconf.metrics.label_summary import LabelSummaries
from segconf.metrics.selective import RECALL_OF_FPR, RankingTotals, ranking_sums

Floats: TypeAlias = NDArray[np.float64]
Summaries: TypeAlias = Sequence[ImageSummary] | LabelSummaries
Interval: TypeAlias = tuple[float, float]
Resampled: TypeAlias = Mapping[str, Floats]
"""(R,) values of each metric of one run."""

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
    images: Summaries,
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
        images: one summary per image or label.
        groups: the group of each image; each on its own when not given.
        generator: source of the draws; an equal one gives equal intervals.
        resamples: number of draws.
        level: fraction of the resamples inside the interval.
        protocol: as in ``ConfidenceMetrics.compute``.
    """
    weights = draw_units(groups or _alone(len(images)), generator, resamples=resamples)  # (R, I)
    values = resampled_metrics(images, weights, protocol=protocol)
    return {name: percentile_interval(value, level=level) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class Differences:
    """Intervals of the difference between two methods, by metric."""

    absolute: Mapping[str, Interval]
    relative: Mapping[str, Interval]
    """As a fraction of the baseline in the same resample."""


def resampled_metrics(
    images: Summaries, weights: Floats, *, protocol: Protocol = "strict"
) -> Resampled:
    """Every metric of a run in each resample, over the pooled pixels of the images drawn.

    Args:
        images: one summary per image or label.
        weights: (R, I) from `draw_units`; the same for all runs that are to be paired.
        protocol: as in ``ConfidenceMetrics.compute``.
    """
    if len(images) != weights.shape[1]:
        raise ValueError(f"{len(images)} images cannot be paired with {weights.shape[1]} draws")
    stack = (
        images.stacked(protocol)
        if isinstance(images, LabelSummaries)
        else stack_summaries(images, protocol)
    )
    parts = [
        all_values(_totals(stack, weights[start : start + _BLOCK]))
        for start in range(0, len(weights), _BLOCK)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def bootstrap_differences(
    runs: Sequence[Resampled],
    baseline: Sequence[Resampled],
    generator: torch.Generator,
    *,
    paired_seeds: bool = False,
) -> Differences:
    """Interval of mean metric minus mean metric of the baseline, over images and seeds.

    Two levels: every resample has its images, the same for all runs, and draws from each side as
    many runs (seeds of one method) as it has, with replacement. A metric is averaged over the runs
    drawn. A side of a single run stays as it is, so that only images are resampled.

    With few seeds the interval is still rather narrow: of S seeds, a bootstrap sees (S - 1) / S
    of the variance.

    Args:
        runs: values of each run of a method, from `resampled_metrics` with the same draws.
        baseline: those of the method to compare with.
        generator: source of the draws of seeds; an equal one gives equal intervals.
        paired_seeds: the runs of both sides are in the order of the same seeds, which are drawn
            together; otherwise each side draws its own.
    """
    resamples = len(next(iter(runs[0].values())))
    drawn = _draw_seeds(len(runs), generator, resamples)  # (R, S)
    other = drawn if paired_seeds else _draw_seeds(len(baseline), generator, resamples)
    if other.shape[1] != len(baseline):
        raise ValueError(f"{len(runs)} and {len(baseline)} runs cannot be paired by seed")
    absolute, relative = {}, {}
    for name in runs[0]:
        ours = _mean_of_drawn([run[name] for run in runs], drawn)
        theirs = _mean_of_drawn([run[name] for run in baseline], other)
        with np.errstate(invalid="ignore"):
            difference = ours - theirs
        absolute[name] = percentile_interval(difference)
        known = theirs != 0
        relative[name] = percentile_interval(difference[known] / theirs[known])
    return Differences(absolute, relative)


def _draw_seeds(count: int, generator: torch.Generator, resamples: int) -> Floats:
    """(R, S) how often each seed is drawn; a single one needs no draw."""
    if count == 1:
        return np.ones((resamples, 1))
    return draw_units(_alone(count), generator, resamples=resamples)


def _mean_of_drawn(values: Sequence[Floats], drawn: Floats) -> Floats:
    """(R,) mean over the runs that were drawn; what was not drawn may be undefined."""
    stacked = np.stack(values, axis=1)  # (R, S)
    with np.errstate(invalid="ignore"):
        terms = np.where(drawn > 0, drawn * stacked, 0.0)
    return np.asarray(terms.sum(axis=1) / drawn.sum(axis=1), np.float64)


def _alone(count: int) -> list[str]:
    """Every image as a group of its own."""
    return [str(number) for number in range(count)]


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
