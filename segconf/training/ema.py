"""Exponential moving average (EMA) of the weights, on top of PyTorch's AveragedModel."""

from functools import partial

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

WARM_UP_STEPS = 10


def build_ema(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model whose weights and BatchNorm statistics follow it slowly.

    After n steps the decay is `min(decay, (1 + n) / (10 + n))`, so that the random start is soon
    forgotten. Running means and variances are averaged like weights; counters are copied.
    """
    ema = AveragedModel(model, avg_fn=partial(_average, decay=decay), use_buffers=True)
    ema.module.eval().requires_grad_(requires_grad=False)
    # The present weights are the first ones: a count of 0 would replace them at the first step.
    ema.n_averaged.fill_(1)
    return ema


def _average(own: Tensor, new: Tensor, averaged: Tensor | int, *, decay: float) -> Tensor:
    if not own.is_floating_point():
        return new
    steps = int(averaged) - 1
    return own.lerp(new, 1 - min(decay, (1 + steps) / (WARM_UP_STEPS + steps)))
