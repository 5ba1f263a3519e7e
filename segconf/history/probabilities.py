"""A history that also keeps what was said: a running mean of the log-odds, in one byte."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from segconf.history.predictions import PredictionHistory

FULL = 255
"""Highest level of log-odds, that of `MOST_ODDS`; level 0 is its negative."""
MOST_ODDS = 8.0
"""Where the levels end, 0.06 apart: lower probabilities count as e^-8, 0.03%."""
DECAY = 0.8
"""Weight of the past in the running mean, per record."""


class ProbabilityHistory(PredictionHistory):
    """Counts of agreements, and an exponential mean of what was said about every pixel.

    The mean is that of the log-odds ``log(p_k / p_0)`` of each class against the background, 8 bits
    each. A mean of probabilities that waver is less certain than they are, and a network that
    learns from it becomes underconfident; the mean of log-odds keeps their certainty.
    """

    def __init__(
        self,
        images: int,
        size: tuple[int, ...],
        *,
        labeled: Sequence[int],
        epochs: int,
        classes: int,
        scratch: Path | None = None,
    ) -> None:
        """Start an empty history; see `PredictionHistory`.

        Args:
            images: number of training images.
            size: (H, W) or (D, H, W) of the unaugmented views.
            labeled: cases that come with a mask.
            epochs: most records that an image will get.
            classes: number of classes K.
            scratch: folder for memory-mapped working arrays; None keeps them in memory.
        """
        super().__init__(images, size, labeled=labeled, epochs=epochs, scratch=scratch)
        self.classes = classes

    def _layout(self) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
        shape = (self.images, self.classes - 1, *self.size)
        return {**super()._layout(), "log_odds": (shape, np.uint8)}

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "classes": self.classes}

    @classmethod
    def _empty(cls, facts: dict[str, Any], epochs: int, scratch: Path | None) -> Self:
        return cls(
            facts["images"],
            tuple(facts["size"]),
            labeled=facts["labeled"],
            epochs=epochs,
            classes=facts["classes"],
            scratch=scratch,
        )

    def record(
        self,
        cases: Tensor,
        predictions: Tensor,
        *,
        epoch: int,
        masks: Tensor | None = None,
        probabilities: Tensor | None = None,
    ) -> None:
        """Take down predictions as `PredictionHistory` does, and (B, K, H, W) probabilities."""
        shape = (len(cases), self.classes, *self.size)
        if probabilities is None or probabilities.shape != shape:
            raise ValueError(f"probabilities of the shape {shape} are needed")
        indices = self._indices(cases)
        rows = self._unseen_rows(indices, epoch)
        super().record(cases, predictions, epoch=epoch, masks=masks)
        newest = _levels(probabilities.detach()[rows].float()).cpu().numpy()  # (R, K - 1, H, W)
        for case, image in zip(indices[rows], newest, strict=True):
            blend(self._arrays["log_odds"][case], image, records=int(self._records[case]))

    def has_record(self, cases: Tensor) -> Tensor:
        """(B,) whether an image was recorded at all."""
        return torch.from_numpy(self._records[self._indices(cases)] > 0).to(cases.device)

    def mean(self, cases: Tensor) -> Tensor:
        """Probabilities whose log-odds are the mean of the recorded ones, newer ones weighing more.

        Args:
            cases: (B,) case numbers.

        Returns:
            (B, K, H, W) float32, on the device of ``cases``; all background before the first
            record.
        """
        levels = torch.from_numpy(self._arrays["log_odds"][self._indices(cases)]).to(cases.device)
        odds = (levels.float() / FULL * 2 - 1) * MOST_ODDS  # (B, K - 1, H, W)
        return torch.cat([torch.zeros_like(odds[:, :1]), odds], dim=1).softmax(dim=1)


def _levels(probabilities: Tensor) -> Tensor:
    """Levels of the log-odds of the classes, not yet rounded: (B, K, H, W) to (B, K - 1, H, W)."""
    # A floor under all classes: the background may be as unlikely as most of the others.
    logs = probabilities.clamp(min=math.exp(-MOST_ODDS)).log()
    odds = logs[:, 1:] - logs[:, :1]  # between -MOST_ODDS and MOST_ODDS
    return (odds / MOST_ODDS + 1) / 2 * FULL


def newest_weight(records: int, decay: float = DECAY) -> float:
    """Weight of the newest of n records in their bias-corrected exponential mean.

    ``m_n = sum_t d^(n-t) z_t / sum_t d^(n-t)`` is ``m_(n-1) + w (z_n - m_(n-1))`` with
    ``w = (1 - d) / (1 - d^n)``: 1 for the first record, 1 - d after many.
    """
    return (1 - decay) / (1 - decay**records)


def blend(mean: NDArray[np.uint8], newest: NDArray[np.float32], *, records: int) -> None:
    """Take a record into a running mean, in place and rounded to its 256 levels.

    A difference of less than ``0.5 / w`` levels no longer moves the mean: with a decay of 0.8 it
    stops within 2.5 levels, 0.16 in log-odds, of what it would be.

    Args:
        mean: (K - 1, H, W) levels.
        newest: (K - 1, H, W) levels of the record, not rounded.
        records: number of records, this one included.
    """
    blended = mean.astype(np.float32)
    blended += np.float32(newest_weight(records)) * (newest - blended)
    mean[...] = np.rint(blended)
