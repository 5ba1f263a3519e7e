"""What each pixel contributes: log-odds of its confidence, correctness, NLL and Brier terms.

Only operations whose result does not depend on the position of a pixel in the tensor are used
(``exp``, ``log``, ``log1p`` and IEEE arithmetic; ``softplus`` and sums along a dimension are not
among them), so that images can be counted in any order with bit-identical results.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BINARY = 2  # number of classes with a formula of its own
ECE_BINS = 15
_ROUNDING = 4e-6  # more than float32 can be off by in 15 times the confidence
# Upper edges of the bins (lo, hi], without the last one.
_EDGES = torch.arange(1, ECE_BINS, dtype=torch.float64) / ECE_BINS


@dataclass(frozen=True, slots=True)
class PixelTerms:
    """Contributions of N pixels; every field has shape (N,)."""

    pair: Tensor  # integer, label * K + prediction
    wrong: Tensor  # boolean, or 0 and 1
    log_odds: Tensor  # float32 or float64, log(confidence / (1 - confidence))
    confidence: Tensor  # float32 or float64
    bins: Tensor  # integer, ECE bin of the confidence
    nll: Tensor  # float32 or float64
    brier: Tensor  # float32 or float64, sum over the classes


def terms_from_logits(logits: Tensor, labels: Tensor) -> PixelTerms:
    """Terms of finite logits (K, ...) and labels (...)."""
    if len(logits) == BINARY and logits.dtype == torch.float32:
        margin = (logits[0] - logits[1]).add_(0).reshape(-1)  # (N,), without minus zero
        log_odds = margin.abs()
        # The difference of two huge finite logits overflows float32, but not float64.
        if math.isfinite(float(log_odds.amax())):
            return _binary_terms(margin, log_odds, labels.reshape(-1))
    return _logit_terms(logits.reshape(len(logits), -1).double(), labels.reshape(-1))


def terms_from_probabilities(probabilities: Tensor, labels: Tensor) -> PixelTerms:
    """Terms of probabilities (K, ...) and labels (...), taken as they are, without normalisation.

    The log-odds come from the sum of the other classes, which does not saturate like ``1 - p``.
    """
    p = probabilities.reshape(len(probabilities), -1).double()  # (K, N)
    truth = labels.reshape(-1)
    confidence, prediction = p.max(dim=0)
    rest = torch.zeros_like(confidence)
    brier = torch.zeros_like(confidence)
    for index, value in enumerate(p):
        rest += torch.where(prediction == index, 0.0, value)
        brier += (value - (truth == index).double()).square()
    return PixelTerms(
        pair=truth * len(p) + prediction,
        wrong=prediction != truth,
        log_odds=confidence.log() - rest.log(),
        confidence=confidence,
        bins=torch.bucketize(confidence, _EDGES),
        nll=-p.gather(0, truth[None])[0].log(),
        brier=brier,
    )


def _binary_terms(margin: Tensor, log_odds: Tensor, labels: Tensor) -> PixelTerms:
    """Two classes in float32: everything follows from the margin z_0 - z_1.

    With ``e = exp(-|margin|)``: confidence ``1 / (1 + e)``, miss ``e / (1 + e)``, NLL
    ``log(1 + e)``, plus ``|margin|`` where wrong, Brier ``2 * (wrong - miss)^2``. Integers and
    products instead of masks, which are several times slower.
    """
    truth = labels.int()
    prediction = (margin.view(torch.int32) >> 31) & 1  # sign bit: class 1 wins, ties go to class 0
    wrong = prediction ^ truth
    wrongs = wrong.float()
    odds = log_odds.neg().exp_()
    confidence = (odds + 1).reciprocal_()
    gap = (odds * confidence).sub_(wrongs)
    return PixelTerms(
        pair=truth.mul_(BINARY).add_(prediction),
        wrong=wrong,
        log_odds=log_odds,
        confidence=confidence,
        bins=_binary_bins(confidence, log_odds),
        nll=odds.log1p_().add_(wrongs.mul_(log_odds)),
        brier=gap.square_().mul_(2),
    )


def _binary_bins(confidence: Tensor, log_odds: Tensor) -> Tensor:
    """ECE bin of float32 confidences; those that rounding could misplace are computed again."""
    # Next to 1.0 there is no edge to be on the wrong side of, so the last bin ends in its middle.
    scaled = (confidence * ECE_BINS).clamp_max_(ECE_BINS - 0.5)
    bins = scaled.int()
    distance = scaled.sub_(scaled.round()).abs_()
    if distance.amin() < _ROUNDING:
        doubtful = (distance < _ROUNDING).nonzero()[:, 0]
        exact = log_odds[doubtful].double().neg().exp_().add_(1).reciprocal_()
        bins[doubtful] = torch.bucketize(exact, _EDGES, out_int32=True)
    return bins


def _logit_terms(z: Tensor, labels: Tensor) -> PixelTerms:
    """Any number of classes, (K, N) in float64."""
    top, prediction = z.max(dim=0)
    correct = prediction == labels
    others = z.scatter(0, prediction[None], -torch.inf)
    second = others.amax(dim=0)
    # Relative to the second best class the sum cannot vanish, however large the margin is.
    tail = torch.zeros_like(top)
    for value in others:
        tail += (value - second).exp_()
    log_odds = (top - second) - tail.log_()
    odds = log_odds.neg().exp_()
    confidence = (odds + 1).reciprocal_()
    miss = odds * confidence
    brier = torch.zeros_like(top)
    for index, value in enumerate(z):
        p = (value - top).exp_().mul_(confidence)
        gap = torch.where(labels == index, torch.where(correct, miss, 1 - p), p)
        brier += gap.square_()
    return PixelTerms(
        pair=labels * len(z) + prediction,
        wrong=~correct,
        log_odds=log_odds,
        confidence=confidence,
        bins=torch.bucketize(confidence, _EDGES),
        nll=odds.log1p_() + (top - z.gather(0, labels[None])[0]),
        brier=brier,
    )
