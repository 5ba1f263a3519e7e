"""How unlike the training images an input is, by what the encoder sees in it.

An image is described by the spatial mean of every channel of the encoder stages at an eighth and a
sixteenth of the grid: earlier stages see little but colour, and the deepest one is trained to
overlook what does not matter for the mask, so that strangers come to lie in the midst of the
training images. The grid is that of the training, or 256 x 320 where the training has less than
192 x 256 pixels: strangers are told by their texture, of which a coarse grid leaves little. The
score is the Mahalanobis distance of the description from those of the training images, with the
covariance shrunk towards its diagonal as Ledoit and Wolf derived it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.checkpoints.weights import read_tensors, write_tensors
from segconf.errors import CheckpointError

FILE_NAME = "features.safetensors"


FORMAT = "segconf features 3"
"""Raise it when the same images would give other features: distances would be meaningless."""


STAGES = (3, 4)
"""Positions among the feature maps of an encoder; the input is number 0."""


ENOUGH_PIXELS = 192 * 256


FINE_GRID = (256, 320)


QUANTILE = 0.95
"""Share of the validation images that are not called strangers."""


_TINY = 1e-6


Floats: TypeAlias = NDArray[np.float64]


def stranger_grid(size: tuple[int, int]) -> tuple[int, int]:
    """Grid on which a network with inputs of this size looks for strangers."""
    return size if math.prod(size) >= ENOUGH_PIXELS else FINE_GRID


def pooled_features(maps: Tensor | Sequence[Tensor]) -> Tensor:
    """Spatial means (B, F) of all channels of the feature maps (B, C, h, w) of an encoder.

    Where there are fewer stages than usual, the deepest is taken.
    """
    stages = [maps] if isinstance(maps, Tensor) else list(maps)
    chosen = stages[STAGES[0] : STAGES[-1] + 1] or stages[-1:]
    return torch.cat([stage.detach().float().mean(dim=(2, 3)) for stage in chosen], dim=1)


@dataclass(frozen=True, slots=True, eq=False)
class StrangerScore:
    """Mahalanobis distance from the training images, and the distance from which to warn.

    Attributes:
        mean: (F,) of the training images.
        whitening: (F, F) matrix W with W W' = inverse covariance.
        threshold: larger scores are called strangers.
        false_alarm_rate: share of the validation images above the threshold.
        validation_images: number of images that the threshold was fitted on.
        grid: height and width of the images that were described.
    """

    mean: Floats
    whitening: Floats
    threshold: float
    false_alarm_rate: float
    validation_images: int
    grid: tuple[int, int]

    @classmethod
    def fit(cls, training: Tensor, validation: Tensor, grid: tuple[int, int]) -> "StrangerScore":
        """Learn what is usual.

        Args:
            training: (N, F) features of training images.
            validation: (V, F) features of other images of the same kind: a network knows the
                images it was trained on too well to fit a threshold on them.
            grid: height and width of the images.
        """
        known, others = (part.double().numpy() for part in (training, validation))
        mean, scale = known.mean(axis=0), known.std(axis=0) + _TINY
        covariance = shrunk_covariance((known - mean) / scale)
        values, vectors = np.linalg.eigh(covariance)
        whitening = vectors / np.sqrt(values) / scale[:, None]
        scores = _distances(others, mean, whitening)
        threshold = float(np.quantile(scores, QUANTILE, method="higher"))
        alarms = float((scores > threshold).mean())
        return cls(mean, whitening, threshold, alarms, len(scores), grid)

    def __call__(self, features: Tensor) -> Floats:
        """Distances (B,) of images by their features (B, F).

        Raises:
            CheckpointError: when the features are those of another network.
        """
        if features.shape[1] != len(self.mean):
            raise CheckpointError(
                f"{FILE_NAME}: has {len(self.mean)} features of an image, but the network beside "
                f"it sees {features.shape[1]}, so it belongs to other weights. Put back the "
                "weights of the run, or remove it to go on without a score for strangers."
            )
        return _distances(features.double().cpu().numpy(), self.mean, self.whitening)


def _distances(features: Floats, mean: Floats, whitening: Floats) -> Floats:
    distances: Floats = np.linalg.norm((features - mean) @ whitening, axis=1)
    return distances


def shrunk_covariance(centred: Floats) -> Floats:
    """Ledoit and Wolf's estimate: ``(1 - a) S + a m I`` with m the mean variance.

    The weight is ``a = min(b, d) / d`` with ``d = |S - m I|^2 / F`` and
    ``b = sum_k |x_k x_k' - S|^2 / (N^2 F)``. Features that never vary give a tiny multiple of I.

    Args:
        centred: (N, F) with mean 0.
    """
    count, size = centred.shape
    sample = centred.T @ centred / count  # (F, F)
    variance = max(float(np.trace(sample)) / size, _TINY)
    target = variance * np.eye(size)
    distance = float(((sample - target) ** 2).sum())
    # sum_k |x_k x_k' - S|^2 = sum_k |x_k|^4 - N |S|^2
    spread = float(((centred**2).sum(axis=1) ** 2).sum()) - count * float((sample**2).sum())
    weight = 1.0 if distance == 0 else min(1.0, max(spread, 0.0) / count**2 / distance)
    shrunk: Floats = (1 - weight) * sample + max(weight, _TINY) * target
    return shrunk


def save_features(path: Path, training: Tensor, validation: Tensor, grid: tuple[int, int]) -> None:
    """Write the features (N, F) and (V, F) of images of that size, by the weights of a run.

    Raises:
        OSError: when the disk is full or the folder cannot be written.
    """
    features = {"training": training, "validation": validation, "grid": torch.tensor(grid)}
    write_tensors(path, features, {"format": FORMAT})


def load_stranger_score(run: Path) -> StrangerScore | None:
    """The score of a run folder, or of the folder of a weights file; None without features."""
    path = (run if run.is_dir() else run.parent) / FILE_NAME
    if not path.is_file():
        return None
    way_out = "Remove it to go on without a score for strangers."
    tensors, metadata = read_tensors(path, way_out=way_out)
    found = metadata.get("format", "no format")
    if found != FORMAT:
        raise CheckpointError(
            f"{path}: {found}, but this version compares {FORMAT}, which describe images in "
            f"another way. {way_out} Without it, `segconf train --resume {path.parent}` makes a "
            "new one."
        )
    if tensors.keys() != {"training", "validation", "grid"}:
        raise CheckpointError(f"{path}: not a file of features. {way_out}")
    height, width = tensors["grid"].tolist()
    return StrangerScore.fit(tensors["training"], tensors["validation"], (height, width))
