"""The network of a run, computed by PyTorch."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.calibration.calibrators import AS_IT_IS, Calibrator
from segconf.calibration.stored import Calibration, read_calibration
from segconf.checkpoints.weights import load_checkpoint, stored_calibrator, weights_hash
from segconf.confidence import FloatArray
from segconf.data.transforms import normalize
from segconf.devices import single_threaded
from segconf.errors import CheckpointError
from segconf.images.types import ByteArray, Image
from segconf.inference.batch_runner import BatchRunner
from segconf.inference.choice import ModelChoice
from segconf.inference.model import GridOutput, Model
from segconf.inference.predictors import predict_batch
from segconf.inference.resampling import tiled_bands
from segconf.methods.method import method_of
from segconf.models.encoders import encoder_normalization
from segconf.ood.detector import OODDetector, load_detector
from segconf.ood.features import FeatureExtractor, pooled_features
from segconf.results.maps import Band
from segconf.runs.run_cases import batch_size as usual_batch

_ACCELERATOR_BATCH = 16
_VOLUME_AXES = 4


class TorchModel(Model):
    """The weights of a run, or a weights file, as a model."""

    packages = ("torch", "segmentation-models-pytorch", "monai")
    detector: OODDetector | None

    def __init__(
        self,
        path: Path,
        *,
        device: torch.device,
        batch_size: int | None = None,
        calibrated: bool = True,
    ) -> None:
        """Load a run folder or weights file; see `load_model`.

        Args:
            path: the run folder, or its weights file.
            device: where the network computes.
            batch_size: images that the network sees at once.
            calibrated: False for the network's own logits, whatever the run has stored, and
                without its detector.
        """
        self.choice = ModelChoice(path, "as asked for")
        self.checkpoint = load_checkpoint(path, device=device)
        self.file = self.checkpoint.path
        self.weights_sha256 = weights_hash(path)
        self.config = self.checkpoint.config
        self.device = device
        self.calibration = Calibration(weights_sha256=self.weights_sha256)
        self.calibrator: Calibrator = AS_IT_IS
        if calibrated:
            self.calibration = read_calibration(path, self.weights_sha256)
            self.calibrator = self.calibration.calibrator or stored_calibrator(self.checkpoint)
        self.temperature, self.scaling = self.calibrator.temperature, self.calibrator.kind
        mean, std = encoder_normalization(self.config.model.encoder, self.config.model.channels)
        self.normalize = partial(normalize, mean=mean, std=std)
        self.predictor = method_of(self.config).predictor(self.checkpoint)
        default = 1 if device.type == "cpu" else _ACCELERATOR_BATCH
        if self.config.data.task == "classification":
            default = usual_batch(self.config)  # small images one by one would take long
        self.batches = BatchRunner(self._predict, batch_size or default)
        self.detector = load_detector(path, self.weights_sha256) if calibrated else None
        self._extractor = None
        if self.detector is not None:
            network = self.checkpoint.model
            grid, band = self.detector.grid, self.detector.band
            self._extractor = FeatureExtractor.of(network, self.config, grid, band)
        self._descriptions = BatchRunner(self._describe, batch_size or default)

    def _predict(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (B, K, h, w) and, where the same pass gives them, features (B, F)."""
        one = predict_batch(self.predictor, images.to(self.device), calibrator=self.calibrator)
        if one.maps is None or not self.shares_grid:
            return one.logits, None
        return one.logits, pooled_features(one.maps)

    def _describe(self, images: Tensor) -> tuple[Tensor, None]:
        """Features (B, F) of normalised images on the grid of the detector."""
        if self._extractor is None:
            raise ValueError("there is no detector that needs features")
        with torch.inference_mode():
            return pooled_features(self._extractor.encoder(images.to(self.device))), None

    @property
    def passes(self) -> int:
        """Passes of the network per image."""
        return self.predictor.count

    @property
    def batch_size(self) -> int:
        """Images that the network sees at once: those that memory allows."""
        return self.batches.batch_size

    @property
    def serves_threads(self) -> bool:
        """Only a single pass: a network whose weights change between passes cannot be shared."""
        return self.predictor.count == 1

    def single_threaded(self) -> AbstractContextManager[None]:
        """A context in which PyTorch has one thread."""
        return single_threaded()

    def grid_logits(self, pixels: ByteArray) -> FloatArray:
        """Logits (B, K, h, w) of pixels (B, h, w, C) on the network's grid, calibrated.

        Raises:
            CheckpointError: the output is not finite.
        """
        logits, _ = self.batches(self.normalize(pixels))
        if not logits.isfinite().all():
            raise CheckpointError(
                f"{self.file}: the network's output is not finite, so its weights are "
                "of no use. Train it again with a smaller training.learning_rate."
            )
        return logits.numpy()

    def grid_output(self, pixels: ByteArray, feature_pixels: ByteArray | None) -> GridOutput:
        """Logits and out-of-distribution scores from one call.

        Args:
            pixels: (B, h, w, C) on the network's grid.
            feature_pixels: the same images from `network_input`; None where that is.
        """
        logits, features = self.batches(self.normalize(pixels))
        if self.detector is None or self._extractor is None:
            return GridOutput(logits.numpy(), np.full(len(logits), np.nan))
        if features is None:
            chosen = pixels if feature_pixels is None else feature_pixels
            features, _ = self._descriptions(self.normalize(chosen))
        return GridOutput(logits.numpy(), self.detector.score(features))

    def tiled_bands(self, pixels: ByteArray) -> Iterator[Band]:
        """Logits of a slice (C, H, W) by a sliding window at its own resolution."""
        return tiled_bands(
            pixels,
            normalize=self.normalize,
            predictor=lambda images: self.batches(images)[0],
            tile=self.config.data.size,
            batch_size=self.batches.batch_size,
        )


def native_logits(model: Model, image: Image, *, tile: bool = False) -> Tensor:
    """Logits of an image on its own grid, (K, H, W), or (D, K, H, W) for a volume.

    These are the logits that `predict` takes its masks from, calibrated: their argmax is the
    saved mask, pixel by pixel.
    """
    per_slice: list[NDArray[np.float32]] = [
        np.concatenate([band.logits for band in bands], axis=1)
        for bands in model.slice_bands(image, None, tile=tile)
    ]
    stacked = torch.from_numpy(np.stack(per_slice))  # (D, K, H, W)
    return stacked[0] if image.pixels.ndim < _VOLUME_AXES else stacked
