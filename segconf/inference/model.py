"""A trained network ready to be used: from an image to logits on the grid of that image."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from segconf.calibration.stored import Calibration, read_calibration
from segconf.checkpoints.weights import load_checkpoint, weights_hash
from segconf.confidence import FloatArray
from segconf.conventions import FULL_SCALE
from segconf.data.preprocessing import read_input
from segconf.data.transforms import normalize
from segconf.devices import resolve_device
from segconf.images.resizing import slices_on_grid
from segconf.images.types import ByteArray, Image
from segconf.inference.batch_runner import BatchRunner
from segconf.inference.prediction import _VOLUME_AXES, Prediction
from segconf.inference.predictors import batch_logits, passes_of
from segconf.inference.resampling import resized_bands, tiled_bands
from segconf.models.encoders import encoder_normalization
from segconf.ood.detector import load_stranger_score, pooled_features
from segconf.overlays.layers import Scale
from segconf.results.maps import Band, Maps

_ACCELERATOR_BATCH = 16


class Model:
    """A network, the preparation of its input, and its calibration."""

    def __init__(self, path: Path, *, device: torch.device, batch_size: int | None = None) -> None:
        """Load a run folder or weights file; see `load_model`."""
        self.checkpoint = load_checkpoint(path, device=device)
        self.calibration: Calibration = read_calibration(path)
        self.config = self.checkpoint.config
        self.temperature = self.checkpoint.temperature
        self.device = device
        mean, std = encoder_normalization(self.config.model.encoder, self.config.model.channels)
        self.passes = passes_of(self.checkpoint)
        self.normalize = partial(normalize, mean=mean, std=std)
        default = 1 if device.type == "cpu" else _ACCELERATOR_BATCH
        self.run = BatchRunner(self._logits, batch_size or default)
        self.stranger_score = load_stranger_score(path)
        self._thread = threading.local()
        self._encoder = getattr(self.checkpoint.model, "encoder", None)
        self._describe = BatchRunner(self._features, batch_size or default)
        if self._looks_on_its_grid and self._encoder is not None:
            self._encoder.register_forward_hook(self._watch)

    @property
    def _looks_on_its_grid(self) -> bool:
        """Whether the pass that predicts also gives the features of the stranger score."""
        score = self.stranger_score
        return score is not None and score.grid == self.config.data.size

    def _watch(self, _module: nn.Module, _inputs: Any, maps: Any) -> None:
        self._thread.passes = [*getattr(self._thread, "passes", []), pooled_features(maps)]

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        """(B, F) of images (B, C, h, w) on the grid of the stranger score."""
        if self._encoder is None:
            raise ValueError("a network without an encoder has no features")
        return pooled_features(self._encoder(images.to(self.device)))

    def _logits(self, images: Tensor) -> Tensor:
        self._thread.passes = []
        logits = batch_logits(self.passes, images.to(self.device), temperature=self.temperature)
        if self._thread.passes:
            mean = torch.stack(self._thread.passes).mean(dim=0)  # (B, F) over the passes
            self._thread.features = [*getattr(self._thread, "features", []), mean.cpu()]
        return logits

    @property
    def scale(self) -> Scale:
        """Levels at which low confidence is shown."""
        limits = self.calibration
        return Scale(limits.threshold, limits.upper, limits.right_below, self.config.model.classes)

    def sha256(self) -> str:
        """Hash of the weights, see `weights_hash`."""
        return weights_hash(self.checkpoint.path)

    def read(self, path: Path) -> Image:
        """Pixels of a file as this network takes them, at their native size."""
        return read_input(path, self.config)

    def network_pixels(self, image: Image) -> ByteArray:
        """All slices of an image on the network's grid, (D, h, w, C); D = 1 for a picture."""
        return slices_on_grid(image.pixels, self.config.data.size)

    def stranger_pixels(self, image: Image) -> ByteArray | None:
        """The same on the grid of the stranger score, where that has one of its own."""
        score = self.stranger_score
        if score is None or self._encoder is None or self._looks_on_its_grid:
            return None
        return slices_on_grid(image.pixels, score.grid)

    def grid_logits(self, pixels: ByteArray) -> FloatArray:
        """Logits (B, K, h, w) on the network's grid, after the temperature."""
        self._thread.features = []
        return self.run(self.normalize(pixels)).numpy()

    def judged(
        self, pixels: ByteArray, finer: ByteArray | None = None
    ) -> tuple[FloatArray, NDArray[np.float64]]:
        """Logits (B, K, h, w), and how unlike the training images each is (B,).

        The score is nan where the run has no features of its training images.

        Args:
            pixels: (B, h, w, C) on the network's grid.
            finer: the same images from `stranger_pixels`; None where that is.
        """
        logits = self.grid_logits(pixels)
        features = self._features_of(pixels, finer)
        if self.stranger_score is None or features is None:
            return logits, np.full(len(logits), np.nan)
        return logits, self.stranger_score(features)

    def _features_of(self, pixels: ByteArray, finer: ByteArray | None) -> Tensor | None:
        """(B, F) on the grid of the stranger score, from the pass just made where it can be."""
        if self.stranger_score is None or self._encoder is None:
            return None
        if not self._looks_on_its_grid:
            return None if finer is None else self._describe(self.normalize(finer))
        if not self._thread.features:  # networks with exchanged weights are copies
            return self._describe(self.normalize(pixels))
        # Only the last batch was filled up, by repetition: what is too much is at the end.
        return torch.cat(self._thread.features)[: len(pixels)]

    def tiled_bands(self, pixels: ByteArray) -> Iterator[Band]:
        """Logits of a slice (C, H, W) by a sliding window at its own resolution."""
        return tiled_bands(
            pixels,
            normalize=self.normalize,
            predictor=self.run,
            tile=self.config.data.size,
            batch_size=self.run.batch_size,
        )

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
        slices = _with_slices(image.pixels)  # (C, D, H, W)
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
        slices = _with_slices(image.pixels)  # (C, D, H, W)
        if tile:
            yield from (self.tiled_bands(slices[:, index]) for index in range(slices.shape[1]))
            return
        known = self.grid_logits(self.network_pixels(image)) if logits is None else logits
        yield from (resized_bands(one, slices.shape[2:]) for one in known)

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


def load_model(path: Path | str, *, device: str = "auto", batch_size: int | None = None) -> Model:
    """A run folder or a weights file, ready to predict.

    Args:
        path: such as `runs/NAME`.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_size: images that the network sees at once; 1 on a CPU, 16 elsewhere by default.
    """
    return Model(Path(path), device=resolve_device(device), batch_size=batch_size)


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


def _with_slices(pixels: ByteArray) -> ByteArray:
    """(C, H, W) as one slice, (C, 1, H, W)."""
    return pixels if pixels.ndim == _VOLUME_AXES else pixels[:, None]
