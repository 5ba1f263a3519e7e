"""The optimizer of a run, and how its learning rate falls."""

import math

import torch
from torch import nn

from segconf.config.schema import TrainingConfig


def build_optimizer(model: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer of the configuration, fused where that exists: it takes a third of the time.

    Weight decay is an L2 penalty with `adam` and `sgd`, and decoupled from the gradient with
    `adamw` (Loshchilov and Hutter 2019). It acts on every parameter.
    """
    parameters, rate, decay = model.parameters(), training.learning_rate, training.weight_decay
    fused = next(model.parameters()).device.type in {"cpu", "cuda"}
    match training.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, lr=rate, weight_decay=decay, fused=fused)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay, fused=fused)
        case "sgd":
            return torch.optim.SGD(
                parameters, rate, training.momentum, weight_decay=decay, fused=fused
            )


def scheduled_rate(rate: float, schedule: str, progress: float) -> float:
    """Learning rate after a fraction p of the training.

    `constant`: the same; `cosine`: ``rate (1 + cos(pi p)) / 2``; `steps`: a tenth from 1/2 on, and
    a hundredth from 5/6 on.
    """
    match schedule:
        case "cosine":
            return rate * (1 + math.cos(math.pi * progress)) / 2
        case "steps":
            return rate / 10.0 ** ((progress >= 1 / 2) + (progress >= 5 / 6))
        case _:
            return rate
