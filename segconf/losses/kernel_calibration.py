"""Maximum mean calibration error (MMCE): a calibration error that has a gradient.

Kumar, Sarawagi and Jain (2018), "Trainable calibration measures for neural networks from kernel
mean embeddings". The mean of ``(c - r) k(r, .)``, with correctness c and confidence r, is an
element of the kernel's Hilbert space that is 0 if and only if the confidence is calibrated.
"""

import torch
from torch import Tensor

KERNEL_WIDTH = 0.4
"""Of the Laplacian kernel, as in the paper."""
_SMALLEST = 1e-12


def mmce(confidence: Tensor, correct: Tensor) -> Tensor:
    """Norm of the mean embedding of the calibration error.

    ``sqrt(1/N^2 sum_ij (c_i - r_i)(c_j - r_j) exp(-|r_i - r_j| / 0.4))``. Where it vanishes, and
    for no pixels at all, it is 0 with a gradient of 0.

    Args:
        confidence: (N,) r, with gradient.
        correct: (N,) c, 1 where the prediction is right, else 0.
    """
    gap = correct - confidence  # (N,)
    kernel = (-(confidence[:, None] - confidence).abs() / KERNEL_WIDTH).exp()  # (N, N)
    square = gap @ kernel @ gap / max(1, len(gap)) ** 2
    # The root has no derivative at 0.
    return torch.where(square > _SMALLEST, square.clamp(min=_SMALLEST).sqrt(), 0.0 * square)


def sampled_rows(count: int, most: int, generator: torch.Generator) -> Tensor | slice:
    """Which of so many pixels are compared: all, or a random sample without repetitions."""
    if count <= most:
        return slice(None)
    return torch.randperm(count, generator=generator)[:most]
