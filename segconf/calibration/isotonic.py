"""Isotonic regression: error rates that never rise with the confidence.

Bins of the log-odds are pooled until the error rate falls from each to the next
(pool-adjacent-violators). What is left are the pooled bins with their counts, a few dozen numbers
for any number of pixels.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from segconf.calibration.error_rates import ErrorRates
from segconf.metrics.image_summary import confidence_of
from segconf.metrics.ranking_histogram import Groups

BIN_WIDTH = 0.125
"""Of the log-odds; within a bin the odds of being wrong change by an eighth."""
LAST_BIN = 96
"""All pixels with log-odds above 12 are in one bin: fewer than 1 in 100,000 should be wrong."""

Counts = NDArray[np.int64]


def fit_error_rates(groups: Iterable[Groups], classes: int) -> ErrorRates:
    """Error rates of validation pixels, falling with the confidence.

    Args:
        groups: right and wrong pixels by ranking value, from `ConfidenceMetrics.groups`.
        classes: number of classes K.
    """
    counts = np.zeros((2, LAST_BIN + 1), np.int64)  # wrong pixels, all pixels
    for block in groups:
        bins = np.minimum(block.value / BIN_WIDTH, LAST_BIN).astype(np.int64)
        np.add.at(counts[0], bins, block.wrong)
        np.add.at(counts[1], bins, block.wrong + block.correct)
    used = np.flatnonzero(counts[1])
    starts, wrong, pixels = pool_adjacent_violators(counts[0, used], counts[1, used])
    lower = used[starts] * BIN_WIDTH  # (G,) ranking values
    confidence = confidence_of(lower, classes)
    confidence[:1] = 1 / classes
    return ErrorRates(tuple(confidence.tolist()), tuple(pixels), tuple(wrong))


def pool_adjacent_violators(
    wrong: Sequence[int] | Counts, pixels: Sequence[int] | Counts
) -> tuple[list[int], list[int], list[int]]:
    """Pool neighbours until the rates fall: isotonic regression with the pixels as weights.

    Args:
        wrong: (N,) of each bin.
        pixels: (N,) of each bin, none of them 0.

    Returns:
        For each pool: index of its first bin, wrong pixels, pixels.
    """
    pools: list[tuple[int, int, int]] = []
    for index, (errors, count) in enumerate(zip(wrong, pixels, strict=True)):
        pool = (index, int(errors), int(count))
        while pools and pools[-1][1] * pool[2] <= pool[1] * pools[-1][2]:
            first, errors_before, before = pools.pop()
            pool = (first, errors_before + pool[1], before + pool[2])
        pools.append(pool)
    return [one[0] for one in pools], [one[1] for one in pools], [one[2] for one in pools]
