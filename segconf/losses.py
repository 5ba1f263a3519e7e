"""Ranking terms and the weighted sum: confidence ordered like correctness and consistency."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

IGNORE = 255

Pairs = Literal["all"] | int


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """How the pixels of a minibatch are ranked against each other.

    Attributes:
        normalization: min-max normalisation of labeled and unlabeled targets each for themselves
            (``separate``) or together (``joint``).
        pair_scope: pairs within the labeled and within the unlabeled pixels (``group``) or between
            all of them (``batch``).
        pairs: ``all`` (a random cycle through all pixels) or the number of pairs to draw from each
            group; ``benchmarks/pairs.py`` compares cost and accuracy.
        target: confidence ordered like the target (``ranking``), or, without any pairs, pulled to
            its value (``pointwise``, an ablation of the paper).
    """

    normalization: Literal["separate", "joint"] = "separate"
    pair_scope: Literal["group", "batch"] = "group"
    pairs: Pairs = 262_144
    target: Literal["ranking", "pointwise"] = "ranking"


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The three terms before weighting, each a scalar."""

    segmentation: Tensor
    correctness: Tensor
    consistency: Tensor


def total_loss(terms: LossTerms, *, correctness_weight: float, consistency_weight: float) -> Tensor:
    """Segmentation term plus the weighted ranking terms."""
    return (
        terms.segmentation
        + correctness_weight * terms.correctness
        + consistency_weight * terms.consistency
    )


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


def all_pairs_ranking_loss(confidence: Tensor, target: Tensor) -> Tensor:
    """Ranking loss over every pair of different pixels, exactly.

    It holds some N * N numbers, so it is for tests and small sets. It is the expectation of
    ``ranking_loss`` over ``random_partners``; times ``N * (N - 1) / 2`` it is Eq. 2 of the paper.
    Fewer than two pixels cost nothing.

    Args:
        confidence: (N,) with gradient.
        target: (N,) in [0, 1], without gradient.

    Returns:
        Mean over the N * (N - 1) / 2 pairs.
    """
    first, second = torch.triu_indices(
        len(target), len(target), offset=1, device=target.device
    )  # (N (N - 1) / 2,) each
    return _loss_of_pairs(confidence, target, first, second)


def sampled_ranking_loss(
    confidence: Tensor, target: Tensor, *, pairs: Pairs, generator: torch.Generator
) -> Tensor:
    """Ranking loss over random pairs: its expectation is ``all_pairs_ranking_loss``.

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


def pointwise_loss(confidence: Tensor, target: Tensor) -> Tensor:
    """Distance of the confidence to the target, pixel by pixel: mean of ``|k_i - t_i|``.

    A constant target is 0 everywhere after its normalisation, which says nothing about confidence:
    it costs nothing, and so do no pixels at all.

    Args:
        confidence: (N,) with gradient.
        target: (N,) normalised to [0, 1], without gradient.

    Returns:
        Mean over the N pixels.
    """
    if not target.any():
        return confidence.sum() * 0
    return (confidence - target).abs().mean()


def correctness_term(
    confidence: Tensor,
    correctness: Tensor,
    masks: Tensor,
    *,
    options: RankingOptions,
    generator: torch.Generator,
) -> Tensor:
    """Rank the confidence of labeled pixels by their normalised correctness.

    Pixels that the mask says to ignore (255) take no part, neither in pairs nor in the
    normalisation.

    Args:
        confidence: (L, H, W) with gradient.
        correctness: (L, H, W) in [0, 1].
        masks: (L, H, W) integers.
        options: ranking or point-wise, and the choice of the pairs.
        generator: draws the pairs.

    Returns:
        Mean over the pairs, or over the pixels.
    """
    confidence, target = confidence.flatten(), correctness.flatten()  # (N,), (N,)
    valid = masks.flatten() != IGNORE  # (N,)
    if not valid.all():
        confidence, target = confidence[valid], target[valid]
    return _term_loss(confidence, normalize(target), options, generator)


def consistency_term(
    confidence: Tensor,
    consistency: Tensor,
    *,
    labeled: int,
    options: RankingOptions,
    generator: torch.Generator,
) -> Tensor:
    """Rank the confidence of labeled and unlabeled pixels by their normalised consistency.

    Pairs within groups are averaged together: a group weighs as much as it has pixels, so that the
    weight of the term means the same for both scopes. An empty group takes no part. Point by point
    there are no pairs, and the groups are those that were normalised for themselves.

    Args:
        confidence: (B, H, W) with gradient, labeled images first.
        consistency: (B, H, W) in [0, 1].
        labeled: number of labeled images in the batch.
        options: normalisation, ranking or point-wise, scope and choice of the pairs.
        generator: draws the pairs.

    Returns:
        Mean over the pairs, or over the pixels.
    """
    target = _normalize_groups(consistency, labeled, options.normalization)  # (B, H, W)
    apart = options.pair_scope == "group"
    if options.target == "pointwise":
        apart = options.normalization == "separate"
    borders = (0, labeled, len(target)) if apart else (0, len(target))
    total = confidence.new_zeros(())
    for start, end in pairwise(borders):
        group_loss = _term_loss(
            confidence[start:end].flatten(), target[start:end].flatten(), options, generator
        )
        total = total + group_loss * ((end - start) / max(len(target), 1))
    return total


def normalize(target: Tensor) -> Tensor:
    """Min-max normalisation to [0, 1]; a constant target becomes 0, so that it costs nothing."""
    if target.numel() == 0:
        return target
    low, high = target.aminmax()
    # Every difference of a constant target is 0, whatever it is divided by.
    return (target - low) / torch.where(high > low, high - low, torch.ones_like(high))


def _normalize_groups(target: Tensor, labeled: int, normalization: str) -> Tensor:
    if normalization == "joint":
        return normalize(target)
    return torch.cat([normalize(target[:labeled]), normalize(target[labeled:])])


def _term_loss(
    confidence: Tensor, target: Tensor, options: RankingOptions, generator: torch.Generator
) -> Tensor:
    """Loss of (N,) pixels with a normalised target."""
    match options.target:
        case "ranking":
            return sampled_ranking_loss(
                confidence, target, pairs=options.pairs, generator=generator
            )
        case "pointwise":
            return pointwise_loss(confidence, target)


def _loss_of_pairs(confidence: Tensor, target: Tensor, first: Tensor, second: Tensor) -> Tensor:
    # index_select, not [...]: its backward pass is several times faster.
    confidence_gap = confidence.index_select(0, first) - confidence.index_select(0, second)
    target_gap = target.index_select(0, first) - target.index_select(0, second)
    return _mean_shortfall(confidence_gap, target_gap)


def _mean_shortfall(confidence_gap: Tensor, target_gap: Tensor) -> Tensor:
    if target_gap.numel() == 0:
        return confidence_gap.sum()
    return torch.relu(target_gap.abs() - target_gap.sign() * confidence_gap).mean()
