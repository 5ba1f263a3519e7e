"""Aleatoric uncertainty: a network that says, pixel by pixel, how noisy its own logits are.

Kendall and Gal (2017), "What uncertainties do we need in Bayesian deep learning for computer
vision?", section 3.3: the logits of a pixel are normal variables, independent between the classes,
of which the network predicts mean and variance. Their softmax has no closed form and is sampled.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from segconf.conventions import IGNORE

MAX_LOG_VARIANCE = 20.0
"""A larger variance is taken for this one: the class is a matter of chance anyway."""


def mean_and_log_variance(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Both halves of the network's outputs (B, 2K, H, W), each (B, K, H, W)."""
    mean, log_variance = outputs.chunk(2, dim=1)
    return mean, log_variance


def noisy_logits(mean: Tensor, log_variance: Tensor, noise: Tensor) -> Tensor:
    """One draw of the logits: ``mean + exp(log_variance / 2) * noise``, with standard noise.

    The variance is bounded, so that the outputs of a poorly trained network cannot overflow.
    """
    return mean + (log_variance.clamp(max=MAX_LOG_VARIANCE) / 2).exp() * noise


def sampled_cross_entropy(
    mean: Tensor, log_variance: Tensor, masks: Tensor, noise: Tensor
) -> Tensor:
    """Negative logarithm of the likelihood of the masks, averaged over draws of the logits.

    Of a pixel with label y: ``-log(1/S sum_s softmax(mean + exp(log_variance / 2) * noise_s)_y)``.
    Without variance it is the cross-entropy. It is computed from log-probabilities, so that a
    likelihood too small for a float costs much, but not infinitely much.

    Args:
        mean: (B, K, H, W) logits.
        log_variance: (B, K, H, W).
        masks: (B, H, W) integers; a pixel of 255 costs nothing.
        noise: (S, B, K, H, W) standard normal draws.

    Returns:
        Loss of every pixel, (B, H, W).
    """
    log_likelihoods = torch.stack(
        [
            -cross_entropy(
                noisy_logits(mean, log_variance, draw),
                masks,
                ignore_index=IGNORE,
                reduction="none",
            )
            for draw in noise
        ]
    )  # (S, B, H, W), 0 where a pixel is ignored
    return math.log(len(noise)) - log_likelihoods.logsumexp(dim=0)


def spread_noise(draws: int, classes: int, generator: torch.Generator) -> Tensor:
    """Standard normal draws (S, K) that cover the distribution evenly.

    Each class gets the same S quantiles, at ``(s + 1/2) / S``, in an order of its own: few draws
    represent the distribution far better than independent ones, and their mean is 0. A single
    draw is 0.
    """
    levels = (torch.arange(draws, dtype=torch.float64) + 0.5) / draws
    quantiles = torch.special.ndtri(levels)  # (S,)
    orders = [torch.randperm(draws, generator=generator) for _ in range(classes)]
    return torch.stack([quantiles[order] for order in orders], dim=1).float()
