"""Where the method of a run decides what its confidence is."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

FloatArray = NDArray[np.float32]


def batch_logits(model: nn.Module, images: Tensor, *, temperature: float) -> Tensor:
    """Logits (B, K, h, w) of normalised images (B, C, h, w) whose softmax is the probability.

    Everything downstream knows these logits only. A method that averages probabilities (several
    passes, several networks) returns the logarithm of the mean probability here.
    """
    with torch.inference_mode():
        return model(images).float() / temperature  # type: ignore[no-any-return]


def probabilities_of(logits: FloatArray) -> FloatArray:
    """Softmax over the first axis, (K, ...) to (K, ...)."""
    exponentials = np.exp(logits - logits.max(axis=0))
    return np.asarray(exponentials / exponentials.sum(axis=0), np.float32)
