"""Out-of-distribution detection by the Mahalanobis distance of encoder features.

The score of an image is the distance of its features, the logarithms of its `energies`, from those
of the training images, with the covariance shrunk towards its diagonal as Ledoit and Wolf derived
it; that of a volume is the mean of its slices. The threshold is a quantile of the scores of
validation images, in which every group counts alike. Both kinds are seen as they are and
recompressed; see `features`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from segconf.checkpoints.weight_files import check_finite, read_tensors, write_tensors
from segconf.data.cases import Case, images_of
from segconf.errors import CheckpointError
from segconf.images.types import Size
from segconf.ood.energies import Directions, Floats, Stored, description_size, moments_of

FILE_NAME = "ood.safetensors"
FORMAT = "segconf ood 5"
"""Raise it when the same images would give other features: distances would be meaningless."""
FALSE_ALARMS = 0.05
"""Largest fraction of the validation images that are flagged."""
_TINY = 1e-6
_ROUNDING = 1e-9  # of sums of weights
_LEAST_SPREAD = 1e-3  # of a log energy: float32 tells smaller differences from nothing badly
_DIRECTIONS = ("mean", "whitening")


@dataclass(frozen=True, slots=True, eq=False)
class OODDetector:
    """Mahalanobis distance from the training images, and the distance above which to flag.

    Attributes:
        directions: of the pixels of each stage, in which energies are measured.
        mean: (F,) of the training images.
        whitening: (F, F) matrix W with W W' = inverse covariance.
        threshold: larger scores are flagged.
        false_alarm_rate: fraction of the validation images, in all their views, above it; the mean
            over groups.
        validation_images: number of images that the threshold was fitted on; a volume is one.
        grid: height and width on which images are described.
        band: height and width to which they are reduced first.
    """

    directions: tuple[Directions, ...]
    mean: Stored
    whitening: Stored
    threshold: float
    false_alarm_rate: float
    validation_images: int
    grid: Size
    band: Size

    @classmethod
    def fit(
        cls,
        training: Tensor,
        validation: Tensor,
        described: "Described",
        cases: Sequence[Case] | None = None,
    ) -> "OODDetector":
        """Estimate all statistics on training images, the threshold on validation images.

        Args:
            training: (N, V, F) descriptions of V views of training images.
            validation: (M, V, F) of other images of the same kind: a network knows the images it
                was trained on too well to fit a threshold on them.
            described: how they were described.
            cases: those of `validation`, which say what belongs together; every one is an image on
                its own when not given.
        """
        known, others = (part.double().flatten(0, 1).numpy() for part in (training, validation))
        moments = moments_of(known, described.channels)
        directions = tuple(Directions.fit(stage) for stage in moments)
        energies = _log_energies(known, directions)
        mean, scale = energies.mean(axis=0), energies.std(axis=0) + _LEAST_SPREAD
        covariance = shrunk_covariance((energies - mean) / scale)
        values, vectors = np.linalg.eigh(covariance)
        whitening = (vectors / np.sqrt(values) / scale[:, None]).astype(np.float32)
        detector = cls(
            directions=directions,
            mean=mean.astype(np.float32),
            whitening=whitening,
            threshold=0.0,
            false_alarm_rate=0.0,
            validation_images=len(validation),
            grid=described.grid,
            band=described.band,
        )
        scores = detector.score(torch.from_numpy(others)).reshape(validation.shape[:2])  # (M, V)
        weights = np.ones(len(scores))
        if cases is not None:
            scores, weights = _image_scores(scores, cases)
        weights = np.repeat(weights, scores.shape[1])
        threshold = upper_quantile(scores.ravel(), weights, 1 - FALSE_ALARMS)
        alarms = float(weights[scores.ravel() > threshold].sum() / weights.sum())
        return replace(
            detector,
            threshold=threshold,
            false_alarm_rate=alarms,
            validation_images=len(scores),
        )

    def score(self, descriptions: Tensor) -> Floats:
        """Distances (B,) of images by their descriptions (B, F).

        Raises:
            CheckpointError: when the descriptions are those of another network.
        """
        expected = description_size([len(one.mean) for one in self.directions])
        if descriptions.shape[1] != expected:
            raise CheckpointError(
                f"{FILE_NAME}: takes {expected} numbers of an image, but the network beside it "
                f"gives {descriptions.shape[1]}, so it belongs to other weights. Put back the "
                "weights of the run, or remove it to go on without out-of-distribution detection."
            )
        energies = _log_energies(descriptions.double().cpu().numpy(), self.directions)
        whitening = self.whitening.astype(np.float64)
        distances: Floats = np.linalg.norm((energies - self.mean) @ whitening, axis=1)
        return distances


def _image_scores(scores: Floats, cases: Sequence[Case]) -> tuple[Floats, Floats]:
    """Scores (I, V) of whole images, the means of their slices, and weights (I,) by group.

    Args:
        scores: (M, V) of the cases.
        cases: M of them.
    """
    images = images_of(cases)
    row = {case.id: number for number, case in enumerate(cases)}
    means = np.stack([scores[[row[case.id] for case in image.cases]].mean(0) for image in images])
    size = Counter(image.group for image in images)
    return means, np.array([1 / size[image.group] for image in images])


def upper_quantile(values: Floats, weights: Floats, fraction: float) -> float:
    """The smallest value with at least this fraction of the other weights below it.

    With equal weights it is ``numpy.quantile(values, fraction, method="higher")``.
    """
    order = np.argsort(values, kind="stable")
    ordered = weights[order]
    below = np.cumsum(ordered) - ordered
    others = np.maximum(weights.sum() - ordered, np.finfo(np.float64).tiny)
    reached = np.flatnonzero(below / others >= fraction - _ROUNDING)
    return float(values[order[reached[0] if reached.size else -1]])


@dataclass(frozen=True, slots=True)
class Described:
    """How images were described: grid, band, and channels of the stages."""

    grid: Size
    band: Size
    channels: tuple[int, ...]


def _log_energies(descriptions: Floats, directions: Sequence[Directions]) -> Floats:
    """Features (B, F') of descriptions (B, F)."""
    moments = moments_of(descriptions, [len(one.mean) for one in directions])
    parts = [one.log_energies(stage) for one, stage in zip(directions, moments, strict=True)]
    return np.concatenate(parts, axis=1)


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
    stages = {
        f"{name}.{number}": torch.from_numpy(getattr(one, name))
        for number, one in enumerate(detector.directions)
        for name in _DIRECTIONS
    }
    tensors = {
        **stages,
        "mean": torch.from_numpy(detector.mean),
        "whitening": torch.from_numpy(detector.whitening),
        "grid": torch.tensor(detector.grid),
        "band": torch.tensor(detector.band),
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
        grid, band = (tuple(tensors[name].tolist()) for name in ("grid", "band"))
        count = sum(name.startswith("mean.") for name in tensors)
        directions = [
            Directions(*(tensors[f"{name}.{number}"].numpy() for name in _DIRECTIONS))
            for number in range(count)
        ]
        return OODDetector(
            directions=tuple(directions),
            mean=tensors["mean"].numpy(),
            whitening=tensors["whitening"].numpy(),
            threshold=float(tensors["threshold"]),
            false_alarm_rate=float(tensors["false_alarm_rate"]),
            validation_images=int(tensors["validation_images"]),
            grid=(grid[0], grid[1]),
            band=(band[0], band[1]),
        )
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{path}: not the statistics of a detector. {way_out}") from error
