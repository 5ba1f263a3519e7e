"""The network of a table: standardised columns, then a multilayer perceptron.

The statistics of the columns are buffers: they are saved with the weights, so that a prediction
cannot be made with others than those of the training.
"""

from itertools import pairwise
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

MLP_WIDTH, MLP_LAYERS = 128, 2


class Standardization(nn.Module):
    """Columns with mean 0 and standard deviation 1 on the training rows: (B, C, 1, 1) to itself."""

    mean: Tensor
    std: Tensor

    def __init__(self, columns: int) -> None:
        """Leave everything as it is, until `standardize` knows the training rows."""
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns, 1, 1))
        self.register_buffer("std", torch.ones(columns, 1, 1))

    def forward(self, rows: Tensor) -> Tensor:
        """``(x - mean) / std`` per column."""
        return (rows - self.mean) / self.std


def standardize(network: nn.Module, rows: NDArray[Any]) -> None:
    """Give the standardisation of a network, where it has one, the statistics of training rows.

    A column that is constant keeps its scale.

    Args:
        network: of a table.
        rows: (N, 1, 1, C) of the training.
    """
    for layer in network.modules():
        if isinstance(layer, Standardization):
            wide = torch.from_numpy(rows[:, 0, 0]).double()  # (N, C)
            std = wide.std(dim=0, correction=0)  # (C,)
            layer.mean.copy_(wide.mean(dim=0)[:, None, None])
            layer.std.copy_(torch.where(std > 0, std, torch.ones_like(std))[:, None, None])


def mlp_stages(columns: int) -> list[nn.Module]:
    """Linear layers with ReLU, as convolutions of one pixel: (B, columns, 1, 1) to (B, F, 1, 1)."""
    widths = [columns] + [MLP_WIDTH] * MLP_LAYERS
    layers = [nn.Conv2d(a, b, kernel_size=1) for a, b in pairwise(widths)]
    return [Standardization(columns), *(nn.Sequential(layer, nn.ReLU()) for layer in layers)]
