"""What rounding the confidence to levels leaves open."""

import numpy as np

from segconf.metrics.image_summary import confidence_of
from segconf.metrics.streaming import ConfidenceMetrics

_BINARY = 2


def nll_bounds(metrics: ConfidenceMetrics, levels: int) -> tuple[float, float]:
    """Smallest and largest mean NLL of what is rounded to the levels that were counted.

    Level l of L stands for the confidences from ``(l - 1/2) / (L - 1)`` to ``(l + 1/2) / (L - 1)``
    that are possible at all: at least 1 / K and at most 1. A right pixel costs ``-log c``. A wrong
    one costs ``-log(1 - c)`` with two classes; with more of them its class has at most that
    probability, and the largest NLL is infinite, as it is for a wrong pixel of the highest level.

    Args:
        metrics: what was counted, every confidence within a level of L.
        levels: their number L.

    Returns:
        Both bounds; nan without any pixel.
    """
    classes, low, high = metrics.num_classes, 0.0, 0.0
    for block in metrics.groups():
        level = np.rint(confidence_of(block.value, classes) * (levels - 1))
        least = np.maximum((level - 0.5) / (levels - 1), 1 / classes)
        most = np.minimum((level + 0.5) / (levels - 1), 1.0)
        low -= float(block.correct @ np.log(most))
        high -= float(block.correct @ np.log(least))
        wrong = block.wrong > 0
        low -= float(block.wrong[wrong] @ np.log(np.minimum(1 - least, most)[wrong]))
        with np.errstate(divide="ignore"):
            rest = 1 - most[wrong] if classes == _BINARY else np.zeros(wrong.sum())
            high -= float(block.wrong[wrong] @ np.log(rest))
    pixels = metrics.pixels
    return (low / pixels, high / pixels) if pixels else (float("nan"), float("nan"))
