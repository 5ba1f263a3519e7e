"""Where the method of a run decides what its confidence is: one pass of the network, or several."""

import math
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn


class Passes(Protocol):
    """How often, and how, the network looks at a batch."""

    count: int

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Logits (B, K, h, w) of every pass over normalised images (B, C, h, w)."""


class SinglePass:
    """One deterministic pass: softmax and the methods that train it to rank."""

    count = 1

    def __init__(self, network: nn.Module) -> None:
        """Use a network in evaluation mode."""
        self._network = network

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Logits of the one pass."""
        yield self._network(images)


def batch_logits(passes: Passes, images: Tensor, *, temperature: float) -> Tensor:
    """Logits (B, K, h, w) of normalised images (B, C, h, w) whose softmax is the probability.

    Everything downstream knows these logits only: those of a single pass, or the logarithm of the
    mean probability of several.
    """
    with torch.inference_mode():
        if passes.count == 1:
            (logits,) = passes(images)
            return logits.float() / temperature
        total: Tensor | None = None
        for logits in passes(images):
            log_probabilities = logits.float().log_softmax(dim=1)
            total = log_probabilities if total is None else total.logaddexp(log_probabilities)
        if total is None:
            raise ValueError("a method needs at least one pass")
        return (total - math.log(passes.count)) / temperature
