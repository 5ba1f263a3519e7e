"""A trained network ready to be used: from an image to logits on the grid of that image."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.calibration.stored import Calibration, read_calibration
from segconf.checkpoints.weights import load_checkpoint, weights_hash
from segconf.confidence import FloatArray
from segconf.config.schema import TEMPERATURES
from segconf.conventions import FULL_SCALE
from segconf.data.preprocessing import Preprocessing
from segconf.data.transforms import normalize
from segconf.devices import resolve_device
from segconf.errors import CheckpointError
from segconf.images.resizing import slices_on_grid
from segconf.images.types import ByteArray, Image
from segconf.inference.batch_runner import BatchRunner
from segconf.inference.choice import ModelChoice, choose_model
from segconf.inference.prediction import Prediction
from segconf.inference.predictors import predict_batch
from segconf.inference.resampling import resized_bands, tiled_bands
from segconf.methods.method import method_of
from segconf.models.encoders import encoder_normalization
from segconf.ood.detector import OODDetector, load_detector
from segconf.ood.features import FeatureExtractor, pooled_features
from segconf.overlays.layers import Contour, Scale
from segconf.results.maps import Band, Maps, with_slices

_ACCELERATOR_BATCH = 16
_VOLUME_AXES = 4


@dataclass(frozen=True, slots=True)
class GridOutput:
    """What the network says about a batch, on its own grid.

    Attributes:
        logits: (B, K, h, w), after the temperature.
        ood_scores: (B,) distance from the training images; nan without a detector.
    """

    logits: FloatArray
    ood_scores: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """The slices of an image as the network and the detector take them, (D, h, w, C) each."""

    pixels: ByteArray
    feature_pixels: ByteArray | None
    """None where the pass that predicts gives the features, or where there is no detector."""


class Model:
    """A network, the preparation of its input, its calibration and its detector."""

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
        self.weights_sha256 = weights_hash(path)
        self.config = self.checkpoint.config
        self.device = device
        self.calibration = Calibration(weights_sha256=self.weights_sha256)
        self.temperature = 1.0
        if calibrated:
            self.calibration = read_calibration(path, self.weights_sha256)
            stored = self.calibration.temperature
            self.temperature = self.checkpoint.temperature if stored is None else stored.value
            low, high = TEMPERATURES
            if not low <= self.temperature <= high:
                raise CheckpointError(
                    f"{self.checkpoint.path}: temperature {self.temperature} is not between {low} "
                    f"and {high}. Fit it again with: segconf calibrate {path}"
                )
        self.preprocessing = Preprocessing.of(self.config)
        mean, std = encoder_normalization(self.config.model.encoder, self.config.model.channels)
        self.normalize = partial(normalize, mean=mean, std=std)
        self.predictor = method_of(self.config).predictor(self.checkpoint)
        default = 1 if device.type == "cpu" else _ACCELERATOR_BATCH
        self.batches = BatchRunner(self._predict, batch_size or default)
        self.detector: OODDetector | None = (
            load_detector(path, self.weights_sha256) if calibrated else None
        )
        self._extractor = None
        if self.detector is not None:
            network = self.checkpoint.model
            self._extractor = FeatureExtractor.of(network, self.config, self.detector.grid)
        self._descriptions = BatchRunner(self._describe, batch_size or default)

    def _predict(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits (B, K, h, w) and, where the same pass gives them, features (B, F)."""
        one = predict_batch(self.predictor, images.to(self.device), temperature=self.temperature)
        if one.maps is None or not self._shares_grid:
            return one.logits, None
        return one.logits, pooled_features(one.maps)

    def _describe(self, images: Tensor) -> tuple[Tensor, None]:
        """Features (B, F) of normalised images on the grid of the detector."""
        if self._extractor is None:
            raise ValueError("there is no detector that needs features")
        with torch.inference_mode():
            return pooled_features(self._extractor.encoder(images.to(self.device))), None

    @property
    def _shares_grid(self) -> bool:
        """Whether the detector describes images on the grid of the network."""
        return self.detector is not None and self.detector.grid == self.config.data.size

    @property
    def scale(self) -> Scale:
        """Levels at which low confidence is shown."""
        stored = self.calibration
        right_below = None if stored.threshold is None else stored.threshold.right_below
        classes = self.config.model.classes
        contours = tuple(
            Contour(one.kind, one.class_index, one.alpha, one.threshold)
            for one in stored.contours
            if one.threshold is not None
        )
        return Scale(stored.lower_level, stored.upper_level, right_below, classes, contours)

    def read(self, path: Path) -> Image:
        """Pixels of a file as this network takes them, at their native size."""
        return self.preprocessing.read(path)

    def network_input(self, image: Image) -> NetworkInput:
        """All slices of an image on the grids of the network and of the detector."""
        pixels = slices_on_grid(image.pixels, self.config.data.size)
        if self._extractor is None or self._shares_grid:
            return NetworkInput(pixels, None)
        return NetworkInput(pixels, self._extractor.pixels(image))

    def grid_logits(self, pixels: ByteArray) -> FloatArray:
        """Logits (B, K, h, w) on the network's grid, after the temperature.

        Raises:
            CheckpointError: the output is not finite.
        """
        logits, _ = self.batches(self.normalize(pixels))
        if not logits.isfinite().all():
            raise CheckpointError(
                f"{self.checkpoint.path}: the network's output is not finite, so its weights are "
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

    def maps(
        self,
        image: Image,
        *,
        logits: FloatArray | None = None,
        tile: bool = False,
        probabilities: bool = False,
    ) -> Maps:
        """Mask and confidence of an image on its own grid.

        Args:
            image: at its native size.
            logits: (D, K, h, w), where the network has seen the image already.
            tile: by a sliding window at native resolution, instead of the whole frame at once.
            probabilities: keep those of all classes.
        """
        slices = with_slices(image.pixels)  # (C, D, H, W)
        maps = Maps.empty(
            slices.shape[1:], classes=self.config.model.classes, probabilities=probabilities
        )
        for index, bands in enumerate(self.slice_bands(image, logits, tile=tile)):
            maps.fill(index, bands)
        return maps

    def slice_bands(
        self, image: Image, logits: FloatArray | None, *, tile: bool
    ) -> Iterator[Iterator[Band]]:
        """Bands of every slice of an image, on its own grid; see `maps` for the arguments."""
        slices = with_slices(image.pixels)  # (C, D, H, W)
        if tile:
            yield from (self._tiled_bands(slices[:, index]) for index in range(slices.shape[1]))
            return
        known = self.grid_logits(self.network_input(image).pixels) if logits is None else logits
        yield from (resized_bands(one, slices.shape[2:]) for one in known)

    def _tiled_bands(self, pixels: ByteArray) -> Iterator[Band]:
        """Logits of a slice (C, H, W) by a sliding window at its own resolution."""
        return tiled_bands(
            pixels,
            normalize=self.normalize,
            predictor=lambda images: self.batches(images)[0],
            tile=self.config.data.size,
            batch_size=self.batches.batch_size,
        )

    def predict(self, image: Image | Path | str, *, tile: bool = False) -> Prediction:
        """Mask, confidence and probabilities of one image."""
        if not isinstance(image, Image):
            image = self.read(Path(image))
        maps = self.maps(image, tile=tile, probabilities=True)
        confidence = np.asarray(maps.levels / np.float32(FULL_SCALE), np.float32)
        shape = image.spatial_shape
        probabilities = np.asarray(maps.probabilities, np.float32)
        return Prediction(
            image=image,
            mask=maps.mask.reshape(shape),
            confidence=confidence.reshape(shape),
            probabilities=probabilities.reshape(-1, *shape),
            scale=self.scale,
        )


def load_model(
    path: Path | str | ModelChoice | None = None,
    *,
    device: str = "auto",
    batch_size: int | None = None,
) -> Model:
    """A run folder, a weights file or a pretrained model, ready to predict.

    Args:
        path: such as `runs/NAME`, or the name of a pretrained model; the newest finished run under
            `runs/` when not given, else the pretrained model.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_size: images that the network sees at once; 1 on a CPU, 16 elsewhere by default.
    """
    choice = path if isinstance(path, ModelChoice) else choose_model(path)
    model = Model(choice.path, device=resolve_device(device), batch_size=batch_size)
    model.choice = choice
    return model


def native_logits(model: Model, image: Image, *, tile: bool = False) -> Tensor:
    """Logits of an image on its own grid, (K, H, W), or (D, K, H, W) for a volume.

    These are the logits that `predict` takes its masks from, after the temperature: their argmax is
    the saved mask, pixel by pixel.
    """
    per_slice: list[NDArray[np.float32]] = [
        np.concatenate([band.logits for band in bands], axis=1)
        for bands in model.slice_bands(image, None, tile=tile)
    ]
    stacked = torch.from_numpy(np.stack(per_slice))  # (D, K, H, W)
    return stacked[0] if image.pixels.ndim < _VOLUME_AXES else stacked
