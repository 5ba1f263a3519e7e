"""Out-of-distribution detection by the Mahalanobis distance of encoder features.

The score of an image is the distance of its features from those of the training images, with the
covariance shrunk towards its diagonal as Ledoit and Wolf derived it. The threshold is a quantile of
the scores of validation images.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.checkpoints.weight_files import check_finite, read_tensors, write_tensors
from segconf.errors import CheckpointError

FILE_NAME = "ood.safetensors"
FORMAT = "segconf ood 4"
"""Raise it when the same images would give other features: distances would be meaningless."""
QUANTILE = 0.95
"""Fraction of the validation images that are not flagged."""
_TINY = 1e-6

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class OODDetector:
    """Mahalanobis distance from the training images, and the distance above which to flag.

    Attributes:
        mean: (F,) of the training images.
        whitening: (F, F) matrix W with W W' = inverse covariance.
        threshold: larger scores are flagged.
        false_alarm_rate: fraction of the validation images above the threshold.
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
    def fit(cls, training: Tensor, validation: Tensor, grid: tuple[int, int]) -> "OODDetector":
        """Estimate mean and covariance on training images, the threshold on validation images.

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

    def score(self, features: Tensor) -> Floats:
        """Distances (B,) of images by their features (B, F).

        Raises:
            CheckpointError: when the features are those of another network.
        """
        if features.shape[1] != len(self.mean):
            raise CheckpointError(
                f"{FILE_NAME}: has {len(self.mean)} features of an image, but the network beside "
                f"it has {features.shape[1]}, so it belongs to other weights. Put back the "
                "weights of the run, or remove it to go on without out-of-distribution detection."
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


def save_detector(path: Path, detector: OODDetector, weights_sha256: str) -> None:
    """Write the statistics of a detector, tied to the weights that made its features.

    Raises:
        FileError: when the disk is full or the folder cannot be written.
    """
    tensors = {
        "mean": torch.from_numpy(detector.mean),
        "whitening": torch.from_numpy(detector.whitening),
        "grid": torch.tensor(detector.grid),
        "threshold": torch.tensor(detector.threshold, dtype=torch.float64),
        "false_alarm_rate": torch.tensor(detector.false_alarm_rate, dtype=torch.float64),
        "validation_images": torch.tensor(detector.validation_images),
    }
    write_tensors(path, tensors, {"format": FORMAT, "weights_sha256": weights_sha256})


def load_detector(run: Path, weights_sha256: str) -> OODDetector | None:
    """The detector beside the weights of a run, or of a weights file; None where there is none.

    Raises:
        CheckpointError: the file is damaged, of another version, or belongs to other weights.
    """
    path = (run if run.is_dir() else run.parent) / FILE_NAME
    if not path.is_file():
        return None
    way_out = (
        f"Remove it, and make a new one with: segconf train --resume {path.parent}. Without it "
        "there is no out-of-distribution detection."
    )
    tensors, metadata = read_tensors(path, way_out=way_out)
    found = metadata.get("format", "no format")
    if found != FORMAT:
        raise CheckpointError(
            f"{path}: {found}, but this version reads {FORMAT}, which describes images in another "
            f"way. {way_out}"
        )
    if metadata.get("weights_sha256") != weights_sha256:
        raise CheckpointError(f"{path}: belongs to other weights than those beside it. {way_out}")
    check_finite(tensors, path, way_out)
    try:
        height, width = tensors["grid"].tolist()
        return OODDetector(
            mean=tensors["mean"].numpy(),
            whitening=tensors["whitening"].numpy(),
            threshold=float(tensors["threshold"]),
            false_alarm_rate=float(tensors["false_alarm_rate"]),
            validation_images=int(tensors["validation_images"]),
            grid=(height, width),
        )
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path}: not the statistics of a detector. {way_out}") from error
