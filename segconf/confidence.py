"""From logits to a prediction and its confidence."""

import torch
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
