"""Counts of many images of one pixel each, their labels, for the bootstrap over images.

What `ImageSummary` is for a mask, a row of `LabelSummaries` is for a label: ten thousand labels
take a few hundred kilobytes, however many classes there are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from segconf.metrics.definitions import Protocol
from segconf.metrics.image_summary import (
    StackedSummaries,
    coarse_bin,
    coarse_value,
    confidence_of,
)
from segconf.metrics.reliability import ECE_BINS, ece_edges
from segconf.metrics.terms import BINARY, terms_from_logits


@dataclass(frozen=True, slots=True)
class LabelSummaries:
    """Counts and sums of N images with a label each."""

    bins: NDArray[np.int64]  # (N,) ids of ranking bins, as in ImageSummary
    truth: NDArray[np.int64]  # (N,) class
    prediction: NDArray[np.int64]  # (N,) class
    confidence: NDArray[np.float64]  # (N,)
    place: NDArray[np.int64]  # (N,) bin of the ECE
    nll: NDArray[np.float64]  # (N,)
    brier: NDArray[np.float64]  # (N,)
    classes: NDArray[np.int64]  # () number of classes

    def __len__(self) -> int:
        return len(self.bins)

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """(N,) whether the prediction is not the label."""
        return np.not_equal(self.truth, self.prediction)

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Self:
        """From finite logits (N, K) and labels (N,)."""
        classes = logits.shape[1]
        terms = terms_from_logits(logits.T.contiguous().float(), labels.long())
        log_odds = terms.log_odds.double().numpy()  # (N,)
        prediction = logits.argmax(dim=1).numpy()
        truth = labels.long().numpy()
        value = np.maximum(log_odds + math.log(classes - 1), 0).astype(np.float32)
        odds = np.exp(-log_odds)
        confidence = 1 / (1 + odds)
        if terms.scores is None:  # of two classes they follow from the log-odds
            wrong = terms.wrong.numpy() != 0
            nll = np.log1p(odds) + np.where(wrong, log_odds, 0)
            brier = 2 * np.where(wrong, confidence, odds * confidence) ** 2
        else:
            nll, brier = terms.scores.nll.numpy(), terms.scores.brier.numpy()
        return cls(
            bins=coarse_bin(value),
            truth=truth,
            prediction=prediction,
            confidence=confidence,
            place=np.searchsorted(ece_edges(classes), value),
            nll=nll,
            brier=brier,
            classes=np.array(classes),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The images of several parts, one after another."""
        names = [field.name for field in fields(cls) if field.name != "classes"]
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(**arrays, classes=parts[0].classes)

    def chosen(self, order: NDArray[np.int64]) -> Self:
        """The images of these numbers, in their order."""
        names = [field.name for field in fields(self) if field.name != "classes"]
        arrays = {name: getattr(self, name)[order] for name in names}
        return type(self)(**arrays, classes=self.classes)

    def check(self, count: int) -> None:
        """Refuse arrays of a file that do not belong together.

        Raises:
            ValueError: naming what is wrong.
        """
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "classes"}
        if self.classes.shape != () or self.classes.dtype.kind not in "iu" or self.classes < BINARY:
            raise ValueError("labels without a number of classes")
        for name, array in arrays.items():
            if array.shape != (count,) or array.dtype.kind not in "iuf":
                raise ValueError(f"labels_{name} is {array.dtype} {array.shape}")
        for name in ("bins", "truth", "prediction", "place"):
            limit = {"bins": 2**31, "place": ECE_BINS}.get(name, int(self.classes))
            values = arrays[name]
            if values.dtype.kind not in "iu" or (values < 0).any() or (values >= limit).any():
                raise ValueError(f"labels_{name} holds values that cannot have been counted")
        if not np.isfinite([self.confidence, self.brier]).all():
            raise ValueError("labels with values that are not finite")

    def counts_above(self, log_odds: float) -> NDArray[np.int64]:
        """(N, 3) wrong images and images with at least these log-odds (to the bin), and 1."""
        value = np.float32(log_odds + math.log(int(self.classes) - 1))
        above = self.bins >= coarse_bin(np.array([value]))[0]
        return np.stack([above & self.wrong, above, np.ones(len(self), bool)], axis=1).astype(int)

    def stacked(self, protocol: Protocol) -> StackedSummaries:
        """The images on one grid of ranking groups, as sparse tables: one entry in each row."""
        from scipy.sparse import csr_array  # slow to import, and predicting does without

        classes, rows = int(self.classes), np.arange(len(self))
        values: NDArray[Any] = -self.bins  # ascending, so bins descend
        if protocol == "paper":
            values = -confidence_of(coarse_value(self.bins), classes).astype(np.float32)
        grid, position = np.unique(values, return_inverse=True)
        right = (~self.wrong).astype(np.float64)
        shape = (len(self), len(grid))
        cells = self.truth * classes + self.prediction
        sums = np.zeros((len(self), ECE_BINS + 2))
        sums[rows, self.place] = right - self.confidence
        sums[:, -2], sums[:, -1] = self.nll, self.brier
        return StackedSummaries(
            correct=csr_array((right, (rows, position)), shape=shape),
            wrong=csr_array((1 - right, (rows, position)), shape=shape),
            confusion=csr_array(
                (np.ones(len(self)), (rows, cells)), shape=(len(self), classes * classes)
            ),
            sums=sums,
            protocol=protocol,
        )
