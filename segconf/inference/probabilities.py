"""From logits to probabilities."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]


def probabilities_of(logits: FloatArray) -> FloatArray:
    """Softmax over the first axis, (K, ...) to (K, ...)."""
    exponentials = np.exp(logits - logits.max(axis=0))
    return np.asarray(exponentials / exponentials.sum(axis=0), np.float32)
