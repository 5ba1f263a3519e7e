"""Ranking terms of the loss: confidence ordered like correctness and like consistency."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from segconf.conventions import IGNORE
from segconf.losses.ranking import Pairs, sampled_ranking_loss


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


def total_loss(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Weighted sum of the loss terms, in their order.

    Args:
        terms: a scalar by name; the first one is the supervised term.
        weights: by the same names.
    """
    first, *others = terms
    total = terms[first] if weights[first] == 1 else weights[first] * terms[first]
    for name in others:
        total = total + weights[name] * terms[name]
    return total


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
