"""From logits to a prediction and its confidence."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def max_probability(logits: Tensor) -> Tensor:
    """Confidence (kappa): the largest softmax probability. (B, K, H, W) to (B, H, W)."""
    return logits.softmax(dim=1).amax(dim=1)


def negative_entropy(logits: Tensor) -> Tensor:
    """Sum of p * log(p) over the classes: 0 when certain, -log(K) when nothing is known."""
    return (logits.softmax(dim=1) * logits.log_softmax(dim=1)).sum(dim=1)


def predict_with_confidence(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Prediction (argmax, uint8) and confidence of each pixel. (B, K, H, W) to two (B, H, W)."""
    confidence, prediction = logits.softmax(dim=1).max(dim=1)  # (B, H, W), (B, H, W)
    return prediction.to(torch.uint8), confidence


FloatArray = NDArray[np.float32]


def probabilities_of(logits: FloatArray) -> FloatArray:
    """Softmax over the first axis, (K, ...) to (K, ...)."""
    exponentials = np.exp(logits - logits.max(axis=0))
    return np.asarray(exponentials / exponentials.sum(axis=0), np.float32)
