"""Back to the grid of the input: logits in bands of rows, then mask and confidence of each band."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segconf.confidence import FloatArray, probabilities_of
from segconf.conventions import FULL_SCALE
from segconf.images.types import ByteArray

_BINARY = 2


LevelArray = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Band:
    """Logits (K, b, W) of the rows from `start` on."""

    start: int
    logits: FloatArray


@dataclass(slots=True)
class Maps:
    """What was predicted for one image, on its own grid.

    Attributes:
        mask: (D, H, W) class index; one slice for a picture.
        levels: (D, H, W) confidence, 0..65535.
        foreground: sum over the pixels of the probability that it is no background.
        overlap: the same sum over the predicted foreground.
        probabilities: (K, D, H, W) where they were asked for.
    """

    mask: ByteArray
    levels: LevelArray
    foreground: float = 0.0
    overlap: float = 0.0
    probabilities: FloatArray | None = None

    @classmethod
    def empty(cls, shape: tuple[int, int, int], *, classes: int, probabilities: bool) -> "Maps":
        """Room for an image of D slices of H x W."""
        room = np.empty((classes, *shape), np.float32) if probabilities else None
        return cls(np.empty(shape, np.uint8), np.empty(shape, np.uint16), probabilities=room)

    @classmethod
    def of_grid(cls, logits: FloatArray) -> "Maps":
        """Mask and confidence (1, h, w) from logits (K, h, w) on the network's grid."""
        classes, height, width = logits.shape
        maps = cls.empty((1, height, width), classes=classes, probabilities=False)
        maps.fill(0, [Band(0, np.ascontiguousarray(logits))])
        return maps

    def fill(self, index: int, bands: Iterable[Band]) -> None:
        """Take the bands of slice `index`."""
        for band in bands:
            rows = slice(band.start, band.start + band.logits.shape[1])
            judged = _judge(band.logits)
            self.mask[index, rows] = judged.mask
            self.foreground += judged.foreground
            self.overlap += judged.overlap
            confidence = judged.confidence
            confidence *= FULL_SCALE
            self.levels[index, rows] = np.rint(confidence, out=confidence)
            if self.probabilities is not None:
                self.probabilities[:, index, rows] = probabilities_of(band.logits)


@dataclass(frozen=True, slots=True)
class _Judged:
    """Mask and confidence (b, W) of a band, and its share of the sums of `Maps`."""

    mask: NDArray[np.integer]
    confidence: FloatArray
    foreground: float
    overlap: float


def _judge(logits: FloatArray) -> _Judged:
    """From logits (K, b, W)."""
    if len(logits) == _BINARY:
        # Softmax of two classes is a sigmoid of their difference: a third of the work.
        difference = logits[1] - logits[0]  # (b, W)
        mask = (difference > 0).view(np.uint8)
        confidence = np.abs(difference)
        np.negative(confidence, out=confidence)
        np.exp(confidence, out=confidence)
        confidence += 1
        np.reciprocal(confidence, out=confidence)
        overlap = float(np.vdot(confidence, mask.astype(np.float32)))
        unsure = mask.size - np.count_nonzero(mask) - (float(confidence.sum()) - overlap)
        return _Judged(mask, confidence, overlap + unsure, overlap)
    probabilities = probabilities_of(logits)
    classes = logits.argmax(axis=0)
    foreground = 1 - probabilities[0]
    return _Judged(
        classes,
        probabilities.max(axis=0),
        float(foreground.sum(dtype=np.float64)),
        float(foreground.sum(dtype=np.float64, where=classes > 0)),
    )
