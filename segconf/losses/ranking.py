"""Ranking loss: pairs of pixels whose confidence is ordered against their target."""

from typing import Literal

import torch
from torch import Tensor

Pairs = Literal["all"] | int


def ranking_loss(confidence: Tensor, target: Tensor, partner: Tensor) -> Tensor:
    """Penalise pairs whose confidence gap falls short of their target gap.

    For a pair (i, j): ``max(0, |t_i - t_j| - sign(t_i - t_j) * (k_i - k_j))``, where ``k`` is the
    confidence (kappa) and ``t`` the consistency or correctness. Equal targets cost nothing, and so
    do no pixels at all.

    Args:
        confidence: (N,) with gradient.
        target: (N,) in [0, 1], without gradient.
        partner: (N,) index of the pixel each pixel is ranked against.

    Returns:
        Mean over the N pairs.
    """
    partner_confidence = confidence.index_select(0, partner)  # (N,)
    partner_target = target.index_select(0, partner)  # (N,)
    return _mean_shortfall(confidence - partner_confidence, target - partner_target)


def random_partners(count: int, generator: torch.Generator) -> Tensor:
    """For each of N pixels, the pixel it is ranked against: a random cycle, never itself.

    Every pixel is in exactly two pairs. A single pixel has only itself, which costs nothing.
    """
    order = torch.randperm(count, generator=generator, device=generator.device)  # (N,)
    partner = torch.empty_like(order)  # (N,)
    partner[order] = order.roll(1)
    return partner


def sampled_ranking_loss(
    confidence: Tensor, target: Tensor, *, pairs: Pairs, generator: torch.Generator
) -> Tensor:
    """Ranking loss over random pairs: its expectation is the mean over all pairs.

    A number of pairs is drawn uniformly among the pairs of different pixels. If there are no more
    pixels than that, each is ranked once along a random cycle instead, as with ``all``.

    Args:
        confidence: (N,) with gradient.
        target: (N,) in [0, 1], without gradient.
        pairs: ``all`` or the number of pairs.
        generator: draws the pairs; it may live on another device than the pixels.

    Returns:
        Mean over the pairs; 0 for fewer than two pixels.
    """
    count = len(target)
    if pairs == "all" or count <= pairs:
        partner = random_partners(count, generator).to(target.device)  # (N,)
        return ranking_loss(confidence, target, partner)
    device = generator.device
    first = torch.randint(count, (pairs,), generator=generator, device=device)
    distance = torch.randint(1, count, (pairs,), generator=generator, device=device)
    second = (first + distance) % count
    return _loss_of_pairs(confidence, target, first.to(target.device), second.to(target.device))


def _loss_of_pairs(confidence: Tensor, target: Tensor, first: Tensor, second: Tensor) -> Tensor:
    # index_select, not [...]: its backward pass is several times faster.
    confidence_gap = confidence.index_select(0, first) - confidence.index_select(0, second)
    target_gap = target.index_select(0, first) - target.index_select(0, second)
    return _mean_shortfall(confidence_gap, target_gap)


def _mean_shortfall(confidence_gap: Tensor, target_gap: Tensor) -> Tensor:
    if target_gap.numel() == 0:
        return confidence_gap.sum()
    return torch.relu(target_gap.abs() - target_gap.sign() * confidence_gap).mean()
