"""Energies of an image: how strongly its feature maps vary, in directions of equal variance.

The pixels of a stage of an encoder have a mean and a covariance over all training images. In the
directions that whiten it, an image has two energies: the mean square of its pixels, and the mean
square of the differences between neighbours. The first knows colours and contrast, the second
texture. Directions in which training images hardly vary count as much as the others: that is where
images of another kind are told from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Stored: TypeAlias = NDArray[np.float32]

_RIDGE = 1e-4
LEAST_ENERGY = 1e-6
"""Added to all energies: a constant map has a logarithm too."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Moments of the pixels of a stage with C channels, for B images.

    Attributes:
        mean: (B, C).
        covariance: (B, C, C) of the pixels of an image.
        difference: (B, C, C) mean products of the differences between neighbours, of both axes.
    """

    mean: Floats
    covariance: Floats
    difference: Floats


def moments_of(description: Floats, channels: Sequence[int]) -> list[Moments]:
    """The moments of every stage from descriptions (B, F); see `features.pooled_features`."""
    found, start = [], 0
    for count in channels:
        parts = []
        for shape in ((count,), (count, count), (count, count)):
            size = int(np.prod(shape))
            parts.append(description[:, start : start + size].reshape(-1, *shape))
            start += size
        found.append(Moments(*parts))
    return found


def description_size(channels: Sequence[int]) -> int:
    """Length F of a description of stages with so many channels."""
    return sum(count + 2 * count * count for count in channels)


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """Directions of equal variance of the pixels of a stage, over all training images.

    Attributes:
        mean: (C,) of all pixels.
        whitening: (C, C) matrix W with W W' = inverse covariance of all pixels.
    """

    mean: Stored
    whitening: Stored

    @classmethod
    def fit(cls, moments: Moments) -> "Directions":
        """From the moments of training images; directions without variance get a little."""
        mean = moments.mean.mean(axis=0)
        off = moments.mean - mean
        covariance = moments.covariance.mean(axis=0) + off.T @ off / len(off)
        size = len(mean)
        covariance += (_RIDGE * np.trace(covariance) / size + LEAST_ENERGY**2) * np.eye(size)
        values, vectors = np.linalg.eigh(covariance)
        whitening = vectors / np.sqrt(values)
        return cls(mean.astype(np.float32), whitening.astype(np.float32))

    def log_energies(self, moments: Moments) -> Floats:
        """Logarithms (B, 2 C) of the energies of images."""
        whitening = self.whitening.astype(np.float64)
        off = (moments.mean - self.mean) @ whitening  # (B, C)
        own = _in_directions(moments.covariance, whitening) + off**2
        texture = _in_directions(moments.difference, whitening)
        return np.log(np.concatenate([own, texture], axis=1) + LEAST_ENERGY)


def _in_directions(products: Floats, whitening: Floats) -> Floats:
    """(B, C) values w' P w of matrices (B, C, C) for every column w; never negative."""
    return np.asarray(np.maximum(((products @ whitening) * whitening).sum(axis=1), 0), np.float64)
