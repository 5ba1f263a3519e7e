"""Metrics of masks and confidence maps of any number of pixels, in one pass and constant memory."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.devices import one_at_a_time
from segconf.metrics import inputs
from segconf.metrics.definitions import PROTOCOLS, Protocol, Totals, all_values
from segconf.metrics.image_summary import ImageSummary, coarse_bin, confidence_of
from segconf.metrics.ranking_histogram import Groups, RankingHistogram
from segconf.metrics.reliability import (
    ConfidenceSums,
    ReliabilityCurve,
    confidence_sums,
    ece_edges,
    reliability_curve,
)
from segconf.metrics.risk_coverage import (
    RiskCoverageCurve,
    RiskThreshold,
    largest_selection,
    selected_errors,
    selection_above,
)
from segconf.metrics.selective import RankingTotals, aurc, ranking_totals
from segconf.metrics.terms import (
    BINARY,
    FixedPointSum,
    PixelTerms,
    terms_from_logits,
    terms_from_probabilities,
)


class ConfidenceMetrics:
    """All metrics of segmentation and confidence, pooled over the pixels of all updates.

    What is remembered are integers (fixed point where the terms are not), so the result does not
    depend on the order of the pixels, on their distribution over calls, or on the split into merged
    parts. Log-odds are float32: NLL and Brier score of two classes are exact to its precision.
    Memory stays below 64 MiB whatever the number of pixels.

    Args:
        num_classes: number of classes K, at least 2.
        ignore_index: label of pixels that are not counted.
    """

    def __init__(self, num_classes: int = 2, ignore_index: int = 255) -> None:
        if num_classes < BINARY:
            raise ValueError(f"num_classes must be at least 2, got {num_classes}")
        if 0 <= ignore_index < num_classes:
            raise ValueError(f"ignore_index {ignore_index} is one of the {num_classes} classes")
        self.num_classes = num_classes
        self.ignore_index = ignore_index
        self._confusion = np.zeros((num_classes, num_classes), np.int64)
        self._ranking = RankingHistogram(ece_edges(num_classes))
        # Of more than two classes; for two, NLL and Brier score follow from the ranking.
        self._nll = FixedPointSum()
        self._brier = FixedPointSum()

    @property
    def pixels(self) -> int:
        """Number of pixels counted, without the ignored ones."""
        return int(self._confusion.sum())

    @property
    def confusion(self) -> NDArray[np.int64]:
        """(K, K) pixels with label (row) and prediction (column)."""
        return self._confusion.copy()

    def update(self, logits: inputs.Array, labels: inputs.Array) -> None:
        """Count a batch of logits; nothing is counted if the batch is refused.

        Args:
            logits: (B, K, ...) float16, bfloat16, float32 or float64, torch or numpy, any device.
            labels: (B, ...) integers.

        Raises:
            ValueError: shapes do not match, a label is out of range, a logit is NaN or infinite.
        """
        logits, labels = inputs.on_cpu(logits), inputs.on_cpu(labels)
        inputs.check_shapes(logits, labels, self.num_classes)
        self._update(logits, labels, inputs.check_logits, terms_from_logits)

    def update_probabilities(self, probabilities: inputs.Array, labels: inputs.Array) -> None:
        """Count a batch of probabilities; nothing is counted if the batch is refused.

        Args:
            probabilities: (B, K, ...), the classes of each pixel sum to one.
            labels: (B, ...) integers.

        Raises:
            ValueError: as ``update``, or probabilities are negative or do not sum to one.
        """
        probabilities, labels = inputs.on_cpu(probabilities), inputs.on_cpu(labels)
        inputs.check_shapes(probabilities, labels, self.num_classes)
        check = partial(inputs.check_probabilities, tolerance=inputs.sum_tolerance(probabilities))
        self._update(probabilities, labels, check, terms_from_probabilities)

    def merge(self, other: Self) -> None:
        """Add the pixels that another instance (worker, rank, image) counted."""
        self._check_same(other.num_classes, other.ignore_index)
        if other is self:
            raise ValueError("metrics cannot be merged with themselves")
        self._confusion += other._confusion
        self._ranking.merge(other._ranking)
        self._nll.merge(other._nll)
        self._brier.merge(other._brier)

    def compute(self, protocol: Protocol = "strict") -> dict[str, float]:
        """All metrics, unscaled; without any pixel all of them are nan.

        ``strict`` ranks pixels by the log-odds of the confidence and compares with the exact
        optimum of the same number of pixels and errors. ``paper`` ranks by the confidence rounded
        to float32, which ties all pixels above log-odds 17.3, and compares with the closed-form
        optimum. Only aurc, eaurc, augrc, fpr95 and aupr_error differ. The confusion matrix is
        the property ``confusion``.

        Returns:
            A value for each of ``METRICS``: ``miou`` (over classes that occur), ``accuracy``,
            ``aurc``, ``eaurc``, ``augrc``, ``fpr95`` (nan if no pixel is right or none is wrong),
            ``aupr_error`` (nan if none is wrong), ``ece``, ``nll`` (inf if a true class has
            probability zero), ``brier``.
        """
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be 'strict' or 'paper', got {protocol!r}")
        sums = self._sums()
        totals = Totals(
            ranking=self._ranking_totals(protocol),
            confusion=self._confusion,
            calibration_gap=sums.gap,
            nll=np.array(sums.nll),
            brier=np.array(sums.brier),
            protocol=protocol,
        )
        return {name: float(value) for name, value in all_values(totals).items()}

    def reliability(self) -> ReliabilityCurve:
        """Accuracy and mean confidence in the 15 bins of the ECE."""
        return reliability_curve(self._sums())

    def risk_coverage(self, points: int = 1000, protocol: Protocol = "strict") -> RiskCoverageCurve:
        """Risk-coverage curve at (at most) this many equally spaced coverages up to 1."""
        pixels, correct = self.pixels, int(np.trace(self._confusion))
        selected = np.unique(-(-np.arange(1, points + 1) * pixels // points))  # (P,), rounded up
        selected = selected[selected > 0]
        errors, value = selected_errors(self.groups(protocol), selected)
        return RiskCoverageCurve(
            coverage=selected / max(pixels, 1),
            risk=errors / selected,
            optimal_risk=np.maximum(selected - correct, 0) / selected,
            confidence=confidence_of(value, self.num_classes),
            random_risk=1 - correct / pixels if pixels else math.nan,
            aurc=float(aurc(self._ranking_totals(protocol))),
        )

    def threshold_for_risk(self, max_risk: float) -> RiskThreshold:
        """Lowest confidence threshold above which at most this fraction of pixels is wrong.

        Pixels with equal confidence are accepted or refused together. If even the most confident
        ones are too wrong, the threshold is infinite, the coverage 0 and the risk nan.
        """
        if not 0 <= max_risk <= 1:
            raise ValueError(f"max_risk must be between 0 and 1, got {max_risk}")
        value, pixels, errors = largest_selection(self.groups(), max_risk)
        log_odds = value - math.log(self.num_classes - 1)
        confidence = float(confidence_of(np.array(value), self.num_classes))
        return RiskThreshold(
            confidence=confidence if pixels else math.inf,
            log_odds=log_odds,
            coverage=pixels / self.pixels if self.pixels else math.nan,
            risk=errors / pixels if pixels else math.nan,
        )

    def selection_at(self, confidence: float) -> RiskThreshold:
        """Coverage and risk of the pixels with at least this confidence; risk nan without any."""
        of_value = partial(confidence_of, num_classes=self.num_classes)
        pixels, errors = selection_above(self.groups(), of_value, confidence)
        certain = confidence >= 1
        return RiskThreshold(
            confidence=confidence,
            log_odds=math.inf if certain else math.log(confidence) - math.log1p(-confidence),
            coverage=pixels / self.pixels if self.pixels else math.nan,
            risk=errors / pixels if pixels else math.nan,
        )

    def summary(self) -> ImageSummary:
        """The state in a few kilobytes, for the bootstrap over images."""
        groups = list(self._ranking.groups(coarse_bin))
        empty = np.empty(0, np.int64)
        sums = self._sums()
        return ImageSummary(
            bins=np.concatenate([empty, *(coarse_bin(block.value) for block in groups)]),
            correct=np.concatenate([empty, *(block.correct for block in groups)]),
            wrong=np.concatenate([empty, *(block.wrong for block in groups)]),
            confusion=self.confusion,
            calibration_gap=sums.gap,
            nll=sums.nll,
            brier=sums.brier,
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything counted so far, as tensors and integers."""
        return {
            "num_classes": self.num_classes,
            "ignore_index": self.ignore_index,
            "confusion": torch.from_numpy(self.confusion),
            "nll": self._nll.state(),
            "brier": self._brier.state(),
            "ranking": self._ranking.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace what was counted so far by a state of the same classes and ignore index."""
        self._check_same(state["num_classes"], state["ignore_index"])
        self._confusion = state["confusion"].numpy().copy()
        self._nll = FixedPointSum(*state["nll"])
        self._brier = FixedPointSum(*state["brier"])
        self._ranking.load_state_dict(state["ranking"])

    def _update(
        self,
        scores: inputs.Array,
        labels: inputs.Array,
        check: Callable[[Tensor], None],
        terms_of: Callable[[Tensor, Tensor], PixelTerms],
    ) -> None:
        """Check all pieces of a batch, then count all of them."""
        pieces = inputs.pieces(scores.shape)
        with one_at_a_time():
            whole = [self._check(*inputs.cut(scores, labels, piece), check) for piece in pieces]
            for piece, nothing_ignored in zip(pieces, whole, strict=True):
                pixels = inputs.cut(scores, labels, piece)
                if not nothing_ignored:
                    pixels = inputs.without_ignored(*pixels, self.ignore_index)
                if pixels[1].numel():
                    self._add(terms_of(*pixels))

    def _check(self, scores: Tensor, labels: Tensor, check: Callable[[Tensor], None]) -> bool:
        """Refuse a piece that cannot be counted; whether all of its pixels count."""
        nothing_ignored = inputs.all_classes(labels, self.num_classes)
        if not nothing_ignored:
            scores, labels = inputs.without_ignored(scores, labels, self.ignore_index)
        if labels.numel():
            check(scores)
        return nothing_ignored

    def _add(self, terms: PixelTerms) -> None:
        size = self.num_classes
        value = terms.log_odds
        if size > BINARY:
            # Log-odds start at -log(K - 1); shifted, they are not negative, nor minus zero.
            value = (value + math.log(size - 1)).clamp_min_(0).abs_()
        self._ranking.add(value.float(), terms.wrong)
        self._confusion += terms.confusion.numpy()
        if terms.scores is not None:
            self._nll.merge(FixedPointSum.of(terms.scores.nll))
            self._brier.merge(FixedPointSum.of(terms.scores.brier))

    def _sums(self) -> ConfidenceSums:
        """Sums over all pixels; NLL and Brier score of all classes."""
        sums = confidence_sums(self._ranking.levels(), self.num_classes)
        if self.num_classes == BINARY:
            return replace(sums, nll=sums.nll + self._ranking.excess.total())
        return replace(sums, nll=self._nll.total(), brier=self._brier.total())

    def _ranking_totals(self, protocol: Protocol) -> RankingTotals:
        correct = int(np.trace(self._confusion))
        return ranking_totals(self.groups(protocol), correct, self.pixels - correct)

    def groups(self, protocol: Protocol = "strict") -> Iterator[Groups]:
        """Right and wrong pixels that share a confidence, by descending confidence."""
        if protocol == "strict":
            return self._ranking.groups()
        return self._ranking.groups(
            lambda value: confidence_of(value, self.num_classes).astype(np.float32)
        )

    def _check_same(self, num_classes: int, ignore_index: int) -> None:
        if (num_classes, ignore_index) != (self.num_classes, self.ignore_index):
            raise ValueError(
                f"metrics count {num_classes} classes and ignore {ignore_index}, "
                f"these count {self.num_classes} and ignore {self.ignore_index}"
            )
