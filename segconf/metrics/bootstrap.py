"""Intervals by resampling whole images, because pixels of one image are not independent."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.metrics.image_summary import ImageSummary, coarse_value, confidence_of
from segconf.metrics.overlap import mean_iou
from segconf.metrics.reliability import expected_calibration_error
from segconf.metrics.selective import (
    RECALL_OF_FPR,
    closed_form_optimal_aurc,
    optimal_aurc,
    ranking_sums,
)
from segconf.metrics.streaming import Protocol

Floats: TypeAlias = NDArray[np.float64]

_BLOCK = 64  # resamples computed together


def bootstrap_metrics(
    images: Sequence[ImageSummary],
    generator: torch.Generator,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    protocol: Protocol = "strict",
) -> dict[str, tuple[float, float]]:
    """Percentile interval of each metric of ``ConfidenceMetrics.compute`` over images.

    Every resample draws as many images as there are, with replacement, and pools their pixels.
    A resample in which a metric is not defined does not count for it; nan if there is no other.

    Args:
        images: one summary per image.
        generator: source of the draws; an equal one gives equal intervals.
        resamples: number of draws.
        level: share of the resamples inside the interval.
        protocol: as in ``ConfidenceMetrics.compute``.
    """
    weights = _draws(len(images), resamples, generator)  # (R, I)
    return _intervals(_resampled(_stack(images, protocol), weights), level)


def bootstrap_differences(
    runs: Sequence[Sequence[ImageSummary]],
    baseline: Sequence[Sequence[ImageSummary]],
    generator: torch.Generator,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    protocol: Protocol = "strict",
) -> dict[str, tuple[float, float]]:
    """Interval of mean metric minus mean metric of the baseline, on the same images each time.

    Both sides are runs (such as seeds of one method) over the same images in the same order; a
    metric is averaged over the runs of a side. The rest is as in ``bootstrap_metrics``.
    """
    counts = {len(images) for images in (*runs, *baseline)}
    if len(counts) != 1:
        raise ValueError(f"runs over {sorted(counts)} images cannot be paired")
    weights = _draws(counts.pop(), resamples, generator)  # (R, I)
    ours, theirs = (_mean_resampled(side, weights, protocol) for side in (runs, baseline))
    return _intervals({name: ours[name] - theirs[name] for name in ours}, level)


def _mean_resampled(
    runs: Sequence[Sequence[ImageSummary]], weights: Floats, protocol: Protocol
) -> dict[str, Floats]:
    """(R,) values of each metric, averaged over runs."""
    values = [_resampled(_stack(images, protocol), weights) for images in runs]
    return {name: np.mean([value[name] for value in values], axis=0) for name in values[0]}


@dataclass(frozen=True, slots=True)
class _Stack:
    """Summaries of I images on one grid of G groups, by descending confidence."""

    counts: Floats  # (I, 2 G): right pixels of each group, then wrong ones
    sums: Floats  # (I, ECE bins + 2): calibration gaps, NLL, Brier
    confusion: Floats  # (I, K * K)
    protocol: Protocol


def _stack(images: Sequence[ImageSummary], protocol: Protocol) -> _Stack:
    bins = np.concatenate([image.bins for image in images])
    grid, position = np.unique(-bins, return_inverse=True)  # ascending, so bins descend
    if protocol == "paper":
        num_classes = len(images[0].confusion)
        confidence = confidence_of(coarse_value(-grid), num_classes).astype(np.float32)
        grid, merged = np.unique(-confidence, return_inverse=True)
        position = merged[position]
    row = np.repeat(np.arange(len(images)), [len(image.bins) for image in images])
    counts = np.zeros((2, len(images), len(grid)))
    np.add.at(counts[0], (row, position), np.concatenate([image.correct for image in images]))
    np.add.at(counts[1], (row, position), np.concatenate([image.wrong for image in images]))
    return _Stack(
        counts=np.concatenate(list(counts), axis=1),
        sums=np.array([[*image.calibration_gap, image.nll, image.brier] for image in images]),
        confusion=np.array([image.confusion.ravel() for image in images], np.float64),
        protocol=protocol,
    )


def _draws(images: int, resamples: int, generator: torch.Generator) -> Floats:
    """(R, I) how often each image was drawn."""
    if images == 0:
        raise ValueError("there is no image to resample")
    picks = torch.randint(images, (resamples, images), generator=generator)  # (R, I)
    weights = torch.zeros(resamples, images, dtype=torch.float64)
    weights.scatter_add_(1, picks, torch.ones_like(picks, dtype=torch.float64))
    return weights.numpy()


def _resampled(stack: _Stack, weights: Floats) -> dict[str, Floats]:
    """(R,) values of each metric."""
    parts = [
        _metrics(stack, weights[start : start + _BLOCK]) for start in range(0, len(weights), _BLOCK)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _metrics(stack: _Stack, weights: Floats) -> dict[str, Floats]:
    counts = weights @ stack.counts  # (R, 2 G)
    right, wrong = np.split(counts, 2, axis=1)  # (R, G), (R, G)
    sums = _weighted(weights, stack.sums)  # (R, ECE bins + 2)
    size = math.isqrt(stack.confusion.shape[1])
    confusion = (weights @ stack.confusion).reshape(-1, size, size)
    right_total, wrong_total = right.sum(axis=1), wrong.sum(axis=1)
    pixels = right_total + wrong_total
    divisor = np.where(pixels > 0, pixels, np.nan)
    ranking = ranking_sums(right, wrong)
    optimum = optimal_aurc if stack.protocol == "strict" else closed_form_optimal_aurc
    aurc = ranking.risk / divisor
    return {
        "miou": mean_iou(confusion),
        "accuracy": right_total / divisor,
        "aurc": aurc,
        "eaurc": aurc - optimum(right_total, wrong_total),
        "augrc": ranking.errors / divisor**2,
        "fpr95": _false_positive_rate(right, wrong),
        "aupr_error": ranking.precision / np.where(wrong_total > 0, wrong_total, np.nan),
        "ece": expected_calibration_error(sums[:, :-2], pixels),
        "nll": sums[:, -2] / divisor,
        "brier": sums[:, -1] / divisor,
    }


def _weighted(weights: Floats, sums: Floats) -> Floats:
    """Weighted sums in which an infinite term counts only where it was drawn."""
    infinite = np.isinf(sums)
    total = weights @ np.where(infinite, 0.0, sums)
    return np.where(weights @ infinite > 0, np.inf, total)


def _false_positive_rate(right: Floats, wrong: Floats) -> Floats:
    """FPR at a recall of 0.95, interpolated, because the coarse groups are not real ties."""
    rates = np.full(len(right), np.nan)
    for index, (hits, misses) in enumerate(zip(right, wrong, strict=True)):
        recall, fpr = np.cumsum(hits), np.cumsum(misses)
        if hits.any() and misses.any():
            target = RECALL_OF_FPR * recall[-1]
            rates[index] = np.interp(target, np.append(0, recall), np.append(0, fpr)) / fpr[-1]
    return rates


def _intervals(values: dict[str, Floats], level: float) -> dict[str, tuple[float, float]]:
    """Central percentile interval of the defined values."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    intervals = {}
    for name, resampled in values.items():
        defined = resampled[~np.isnan(resampled)]
        intervals[name] = (math.nan, math.nan)
        if defined.size:
            tail = (1 - level) / 2
            # Bounds that occurred: between a finite and an infinite value there is no other.
            low, high = np.quantile(defined, [tail, 1 - tail], method="inverted_cdf")
            intervals[name] = (float(low), float(high))
    return intervals
