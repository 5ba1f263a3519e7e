"""From logits to a prediction and its confidence: tensors for training, arrays for maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

FloatArray = NDArray[np.float32]
_BINARY = 2


def negative_entropy(logits: Tensor) -> Tensor:
    """Sum of p * log(p) over the classes: 0 when certain, -log(K) when nothing is known."""
    return (logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1)


def predict_with_confidence(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Prediction (argmax, uint8) and confidence of each pixel. (B, K, H, W) to two (B, H, W)."""
    confidence, prediction = logits.softmax(dim=1).max(dim=1)  # (B, H, W), (B, H, W)
    return prediction.byte(), confidence


def probabilities_of(logits: FloatArray) -> FloatArray:
    """Softmax over the first axis, (K, ...) to (K, ...)."""
    powers: FloatArray = np.exp(logits - logits.max(axis=0))
    powers /= powers.sum(axis=0)
    return powers


@dataclass(frozen=True, slots=True)
class RowsConfidence:
    """Mask and confidence (b, W) of some rows, and sums over their pixels.

    Attributes:
        mask: class index.
        confidence: probability of that class.
        foreground: sum of the probability that a pixel is not background.
        overlap: the same sum over the predicted foreground.
        class_sums: (K,) sum of the probability of each class.
    """

    mask: NDArray[np.integer]
    confidence: FloatArray
    foreground: float
    overlap: float
    class_sums: NDArray[np.float64]


def rows_confidence(logits: FloatArray) -> RowsConfidence:
    """Mask and confidence of some rows of an image from their logits (K, b, W)."""
    if len(logits) == _BINARY:
        # Softmax of two classes is a sigmoid of their difference: a third of the work.
        difference = logits[1] - logits[0]  # (b, W)
        mask = (difference > 0).view(np.uint8)
        confidence = np.abs(difference)
        np.negative(confidence, out=confidence)
        np.exp(confidence, out=confidence)
        confidence += 1
        np.reciprocal(confidence, out=confidence)
        overlap = float(np.vdot(confidence, mask.astype(np.float32)))
        unsure = mask.size - np.count_nonzero(mask) - (float(confidence.sum()) - overlap)
        foreground = overlap + unsure
        sums = np.array([mask.size - foreground, foreground])
        return RowsConfidence(mask, confidence, foreground, overlap, sums)
    probabilities = probabilities_of(logits)
    classes = logits.argmax(axis=0)
    rest = 1 - probabilities[0]
    return RowsConfidence(
        classes,
        probabilities.max(axis=0),
        float(rest.sum(dtype=np.float64)),
        float(rest.sum(dtype=np.float64, where=classes > 0)),
        probabilities.sum(axis=(1, 2), dtype=np.float64),
    )
