"""How much the order of tied pixels could matter."""

from collections.abc import Iterator

import numpy as np

from segconf.metrics.ranking import Groups
from segconf.metrics.selective import ranking_metrics
from segconf.metrics.streaming import ConfidenceMetrics


def aurc_bounds(metrics: ConfidenceMetrics) -> tuple[float, float]:
    """Smallest and largest AURC over all orders of tied pixels.

    Maps of few levels tie pixels that the network told apart. Its true AURC lies between the one
    with the right pixels of every level first and the one with the wrong pixels first.
    """
    confusion = metrics.confusion
    correct = int(np.trace(confusion))
    wrong = int(confusion.sum()) - correct
    low, high = (
        ranking_metrics(_ordered(metrics, wrong_first=wrong_first), correct, wrong)["aurc"]
        for wrong_first in (False, True)
    )
    return low, high


def _ordered(metrics: ConfidenceMetrics, *, wrong_first: bool) -> Iterator[Groups]:
    """Every group as two: its right and its wrong pixels."""
    for block in metrics.groups():
        zeros = np.zeros_like(block.correct)
        halves = [(block.correct, zeros), (zeros, block.wrong)]
        if wrong_first:
            halves.reverse()
        (first_right, first_wrong), (second_right, second_wrong) = halves
        yield Groups(
            value=np.repeat(block.value, 2),
            correct=np.stack([first_right, second_right], axis=1).ravel(),
            wrong=np.stack([first_wrong, second_wrong], axis=1).ravel(),
        )
