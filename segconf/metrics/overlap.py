"""Overlap of a predicted mask with the true one, for one image and for a confusion matrix."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def dice(prediction: NDArray[np.bool_], mask: NDArray[np.bool_]) -> float:
    """Dice overlap ``2 |P and M| / (|P| + |M|)``; nan when both are empty.

    Nan, so that an average over images can leave the case out.

    Args:
        prediction: boolean array of any shape.
        mask: boolean array of the same shape.
    """
    shared, predicted, true = _areas(prediction, mask)
    return 2 * shared / (predicted + true) if predicted + true else math.nan


def expected_dice(shared: float, foreground: float, found: int) -> float:
    """Dice to expect if the probabilities are right: ``2 sum(p m) / (sum(p) + sum(m))``.

    Nan when neither the probabilities p nor the predicted mask m have any foreground, as for Dice.

    Args:
        shared: sum of the foreground probability over the predicted foreground, sum(p m).
        foreground: sum of the foreground probability over all pixels, sum(p).
        found: pixels of the predicted foreground, sum(m).
    """
    mass = foreground + found
    return 2 * shared / mass if mass > 0 else math.nan


def class_dice(confusion: NDArray[Any]) -> NDArray[np.float64]:
    """Dice of each class from (..., K, K) counts; nan for a class that does not occur."""
    shared = np.diagonal(confusion, axis1=-2, axis2=-1)  # (..., K)
    total = confusion.sum(axis=-1) + confusion.sum(axis=-2)  # (..., K)
    seen = total > 0
    return np.where(seen, 2 * shared / np.where(seen, total, 1), np.nan)


def foreground_confusion(confusion: NDArray[Any]) -> NDArray[Any]:
    """(2, 2) counts of background and foreground, which is every class but 0."""
    edges = [0, 1]
    return np.add.reduceat(np.add.reduceat(confusion, edges, axis=0), edges, axis=1)


def class_iou(confusion: NDArray[Any]) -> NDArray[np.float64]:
    """Pooled IoU of each class from (..., K, K) counts; nan for a class that does not occur."""
    shared = np.diagonal(confusion, axis1=-2, axis2=-1)  # (..., K)
    union = confusion.sum(axis=-1) + confusion.sum(axis=-2) - shared  # (..., K)
    seen = union > 0
    return np.where(seen, shared / np.where(seen, union, 1), np.nan)


def mean_iou(confusion: NDArray[Any]) -> NDArray[np.float64]:
    """Mean of the pooled IoU over the classes that occur in labels or predictions; nan if none."""
    per_class = class_iou(confusion)  # (..., K)
    seen = ~np.isnan(per_class)
    count = seen.sum(axis=-1)
    total = np.where(seen, per_class, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _areas(prediction: NDArray[np.bool_], mask: NDArray[np.bool_]) -> tuple[int, int, int]:
    """Pixels in both, in the prediction, in the mask."""
    if prediction.shape != mask.shape:
        raise ValueError(f"prediction is {prediction.shape}, mask is {mask.shape}")
    if prediction.dtype != np.bool_ or mask.dtype != np.bool_:
        raise ValueError(f"masks must be boolean, got {prediction.dtype} and {mask.dtype}")
    shared = int(np.count_nonzero(prediction & mask))
    return shared, int(np.count_nonzero(prediction)), int(np.count_nonzero(mask))
