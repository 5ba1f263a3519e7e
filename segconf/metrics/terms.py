"""What each pixel contributes: log-odds of its confidence, correctness, NLL and Brier terms.

Only operations whose result does not depend on the position of a pixel in the tensor are used
(``exp``, ``log``, ``log1p`` and IEEE arithmetic; ``softplus`` and sums along a dimension are not
among them), and sums are integers in fixed point, so that images can be counted in any order with
bit-identical results.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

BINARY = 2  # number of classes with a formula of its own
_SCALE = 1 << 36


@dataclass(frozen=True, slots=True)
class Scores:
    """Proper scores of N pixels; every field has shape (N,)."""

    nll: Tensor  # float64
    brier: Tensor  # float64, sum over the classes


@dataclass(frozen=True, slots=True)
class PixelTerms:
    """Contributions of N pixels."""

    confusion: Tensor  # (K, K) pixels with label (row) and prediction (column)
    wrong: Tensor  # (N,) boolean, or 0 and 1
    log_odds: Tensor  # (N,) float32 or float64, log(confidence / (1 - confidence))
    scores: Scores | None  # none for two classes: they follow from log-odds and correctness


def terms_from_logits(logits: Tensor, labels: Tensor) -> PixelTerms:
    """Terms of finite logits (K, ...) and labels (...)."""
    if len(logits) == BINARY:
        return _binary_terms((logits[1] - logits[0]).reshape(-1), labels.reshape(-1))
    return _logit_terms(logits.reshape(len(logits), -1).double(), labels.reshape(-1))


def terms_from_probabilities(probabilities: Tensor, labels: Tensor) -> PixelTerms:
    """Terms of probabilities (K, ...), normalised, and labels (...).

    The log-odds come from the sum of the other classes, which does not saturate like ``1 - p``.
    """
    p = probabilities.reshape(len(probabilities), -1).double()  # (K, N)
    total = torch.zeros_like(p[0])
    for value in p:
        total += value
    p = p / total
    truth = labels.reshape(-1)
    confidence, prediction = p.max(dim=0)
    rest = torch.zeros_like(confidence)
    brier = torch.zeros_like(confidence)
    for index, value in enumerate(p):
        rest += torch.where(prediction == index, 0.0, value)
        brier += (value - (truth == index).double()).square()
    nll = -p.gather(0, truth[None])[0].log()
    return PixelTerms(
        confusion=_confusion(truth, prediction, len(p)),
        wrong=prediction != truth,
        log_odds=confidence.log() - rest.log(),
        scores=Scores(nll, brier) if len(p) > BINARY else None,
    )


def _binary_terms(margin: Tensor, labels: Tensor) -> PixelTerms:
    """Two classes: everything follows from the margin z_1 - z_0, (N,) in float32 or float64.

    Integers instead of masks, which are several times slower. The margin is overwritten.
    """
    truth = labels.int()
    # Bit patterns of positive numbers are positive integers; those of 0, -0 and below are not.
    pattern = margin.view(torch.int32 if margin.dtype == torch.float32 else torch.int64)
    prediction = pattern.clamp(0, 1).int()
    wrong = prediction ^ truth
    true, predicted, missed = _total(truth), _total(prediction), _total(wrong)
    both = (true + predicted - missed) // 2
    rest = len(margin) - true - predicted + both
    return PixelTerms(
        confusion=torch.tensor([[rest, predicted - both], [true - both, both]]),
        wrong=wrong,
        log_odds=margin.abs_(),
        scores=None,
    )


def _total(values: Tensor) -> int:
    """Sum of a piece of zeros and ones; numpy and 32 bits are three times as fast."""
    return int(np.add.reduce(values.numpy(), dtype=np.int32))


def _confusion(labels: Tensor, prediction: Tensor, size: int) -> Tensor:
    """(K, K) numbers of pixels."""
    return torch.bincount(labels * size + prediction, minlength=size * size).view(size, size)


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
    nll = odds.log1p_() + (top - z.gather(0, labels[None])[0])
    return PixelTerms(
        confusion=_confusion(labels, prediction, len(z)),
        wrong=~correct,
        log_odds=log_odds,
        scores=Scores(nll, brier),
    )


class FixedPointSum:
    """Sum of terms, each rounded to a multiple of 2^-36, in an integer of any length."""

    def __init__(self, units: int = 0, infinite: int = 0) -> None:
        self._units = units
        self._infinite = infinite

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Sum of (N,) floating point terms, none of them nan."""
        scaled = values.double().mul_(_SCALE).round_()
        total = float(scaled.sum())
        if total < 2.0**53:
            # Every partial sum is an integer that float64 holds exactly, in whatever order.
            return cls(int(total))
        if total < 2.0**62:
            return cls(int(scaled.long().sum()))
        finite = [int(value) for value in scaled.tolist() if math.isfinite(value)]
        return cls(sum(finite), len(scaled) - len(finite))

    def merge(self, other: Self) -> None:
        """Add the terms of another sum."""
        self._units += other._units
        self._infinite += other._infinite

    def total(self) -> float:
        """The sum; infinite if a term was."""
        return self.mean(1)

    def mean(self, count: int) -> float:
        """The sum divided by a number of terms, correctly rounded; nan for none."""
        if count == 0:
            return math.nan
        return math.inf if self._infinite else self._units / (count * _SCALE)

    def state(self) -> tuple[int, int]:
        """Arguments that make an equal sum."""
        return self._units, self._infinite
