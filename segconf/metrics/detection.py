"""How well a score tells strangers from what a model was made for."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.metrics.ranking import Groups
from segconf.metrics.selective import ranking_metrics


def detection_metrics(own: NDArray[Any], strangers: NDArray[Any]) -> dict[str, float]:
    """Separation of two sets of images by a score that is high for strangers.

    - ``auroc``: probability that a stranger scores higher than an own image; ties count half.
    - ``detection_error``: smallest value over all thresholds of
      ``(own images refused + strangers accepted) / 2``, as shares: both kinds count alike.
    - ``fpr95``: share of strangers accepted at the threshold that accepts nearest to 95% of the own
      images, the stricter of two equally near.

    Args:
        own: (N,) scores of images like those of the training.
        strangers: (M,) scores of other images.
    """
    if len(own) == 0 or len(strangers) == 0:
        raise ValueError(f"cannot compare {len(own)} own images with {len(strangers)} strangers")
    values, group = np.unique(np.concatenate([own, strangers]), return_inverse=True)
    counts = np.zeros((2, len(values)), np.int64)
    np.add.at(counts[0], group[: len(own)], 1)
    np.add.at(counts[1], group[len(own) :], 1)
    accepted = np.cumsum(counts, axis=1) / [[len(own)], [len(strangers)]]  # (2, G) up to a value
    before = accepted[0] - counts[0] / len(own)
    auroc = float(((before + accepted[0]) / 2) @ counts[1] / len(strangers))
    errors = (1 - accepted[0] + accepted[1]) / 2
    groups = Groups(values.astype(np.float32), counts[0], counts[1])
    return {
        "auroc": auroc,
        "detection_error": min(0.5, float(errors.min())),
        "fpr95": ranking_metrics([groups], len(own), len(strangers))["fpr95"],
    }
