"""A trained network ready to be used: from an image to mask and confidence on the grid of it.

`Model` is what every network offers, in arrays. `torch_model.py` runs the weights of a run,
`onnx_model.py` a packaged file.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from segconf.calibration.stored import Calibration
from segconf.confidence import FloatArray
from segconf.config.schema import ExperimentConfig
from segconf.conventions import FULL_SCALE
from segconf.data.preprocessing import Preprocessing
from segconf.images.resizing import reduced_slices, slices_on_grid
from segconf.images.types import ByteArray, Image, Size
from segconf.inference.choice import ModelChoice, choose_model
from segconf.inference.prediction import Prediction
from segconf.inference.resampling import resized_bands
from segconf.overlays.layers import Contour, Scale
from segconf.results.flags import with_flags
from segconf.results.maps import Band, Maps, with_slices
from segconf.results.rows import CaseRow

ONNX_SUFFIX = ".onnx"


@dataclass(frozen=True, slots=True)
class GridOutput:
    """What the network says about a batch, on its own grid.

    Attributes:
        logits: (B, K, h, w), calibrated.
        ood_scores: (B,) distance from the training images; nan without a detector.
    """

    logits: FloatArray
    ood_scores: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """The slices of an image as the network and the detector take them, (D, h, w, C) each.

    A row of a table is a slice of one pixel with a channel per column.
    """

    pixels: NDArray[Any]
    feature_pixels: ByteArray | None
    """None where the pass that predicts gives the features, or where there is no detector."""


class Detector(Protocol):
    """When an image is out of distribution, and how far that can be trusted."""

    @property
    def threshold(self) -> float:
        """Larger scores are flagged."""

    @property
    def false_alarm_rate(self) -> float:
        """Fraction of the validation images above the threshold."""

    @property
    def validation_images(self) -> int:
        """Number of images that the threshold was fitted on."""

    @property
    def grid(self) -> Size:
        """Height and width on which images are described."""

    @property
    def band(self) -> Size:
        """Height and width to which they are reduced first."""


class Model(ABC):
    """A network, the preparation of its input, its calibration and its detector.

    Attributes:
        choice: the model that was asked for, and why it is this one.
        file: the weights, or the packaged network.
        config: of the experiment that trained it.
        weights_sha256: of all weights that a prediction uses.
        calibration: what was fitted for these weights.
        temperature: of the calibrator; 1 for one that has none.
        scaling: kind of the calibrator: `temperature`, `ets` or `vector`.
        detector: of out-of-distribution images, where there is one.
    """

    packages: ClassVar[tuple[str, ...]]
    """Distributions whose versions decide the numbers, for `run.json`."""

    choice: ModelChoice
    file: Path
    config: ExperimentConfig
    weights_sha256: str
    calibration: Calibration
    temperature: float
    scaling: str
    detector: Detector | None

    @property
    @abstractmethod
    def passes(self) -> int:
        """Passes of the network per image."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Images that the network sees at once."""

    @property
    @abstractmethod
    def serves_threads(self) -> bool:
        """Whether several threads may use the network at the same time."""

    @abstractmethod
    def single_threaded(self) -> AbstractContextManager[None]:
        """A context in which the network computes each call in one thread."""

    @abstractmethod
    def grid_logits(self, pixels: ByteArray) -> FloatArray:
        """Logits (B, K, h, w) of pixels (B, h, w, C) on the network's grid, calibrated.

        Raises:
            CheckpointError: the output is not finite.
        """

    @abstractmethod
    def grid_output(self, pixels: ByteArray, feature_pixels: ByteArray | None) -> GridOutput:
        """Logits and out-of-distribution scores from one call.

        Args:
            pixels: (B, h, w, C) on the network's grid.
            feature_pixels: the same images from `network_input`; None where that is.
        """

    @abstractmethod
    def tiled_bands(self, pixels: ByteArray) -> Iterator[Band]:
        """Logits of a slice (C, H, W) by a sliding window at its own resolution."""

    @property
    def feature_grid(self) -> Size:
        """Height and width of the pixels that the detector takes."""
        if self.detector is None:
            raise ValueError("there is no detector")
        return self.detector.grid

    @property
    def shares_grid(self) -> bool:
        """Whether the detector describes images as the network sees them."""
        size = self.config.data.size
        return self.detector is not None and self.detector.grid == size == self.detector.band

    @property
    def scale(self) -> Scale:
        """Which pixels are shaded, and the lines that keep a promise."""
        stored = self.calibration
        contours = tuple(
            Contour(one.kind, one.class_index, one.alpha, one.threshold)
            for one in stored.contours
            if one.threshold is not None
        )
        return replace(stored.scale(self.config.model.classes), contours=contours)

    def with_flags(self, row: CaseRow, remarks: Sequence[str] = ()) -> CaseRow:
        """The row of a prediction with its flags; see `results.flags`."""
        limit = None if self.detector is None else self.detector.threshold
        return with_flags(row, self.calibration, ood_limit=limit, remarks=remarks)

    def read(self, path: Path) -> Image:
        """Pixels of a file as this network takes them, at their native size."""
        return Preprocessing.of(self.config).read(path)

    def network_input(self, image: Image) -> NetworkInput:
        """All slices of an image on the grids of the network and of the detector."""
        pixels = slices_on_grid(image.pixels, self.config.data.size)
        if self.detector is None or self.shares_grid:
            return NetworkInput(pixels, None)
        described = reduced_slices(image.pixels, self.detector.band, self.feature_grid)
        return NetworkInput(pixels, described)

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
            slices.shape[1:],
            classes=self.config.model.classes,
            probabilities=probabilities,
            contours=self.scale.contours,
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
            yield from (self.tiled_bands(slices[:, index]) for index in range(slices.shape[1]))
            return
        known = self.grid_logits(self.network_input(image).pixels) if logits is None else logits
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


def load_model(
    path: Path | str | ModelChoice | None = None,
    *,
    device: str = "auto",
    batch_size: int | None = None,
) -> Model:
    """A run folder, a weights file, a packaged network or a pretrained model, ready to predict.

    Args:
        path: such as `runs/NAME`, `model.onnx`, or the name of a pretrained model; the newest
            finished run under `runs/` when not given, else the pretrained model.
        device: auto, cpu, cuda, cuda:N or mps.
        batch_size: images that the network sees at once; 1 on a CPU, 16 elsewhere by default.
    """
    choice = path if isinstance(path, ModelChoice) else choose_model(path)
    model: Model
    if choice.path.suffix == ONNX_SUFFIX:
        from segconf.inference.onnx_model import OnnxModel

        model = OnnxModel(choice.path, device=device, batch_size=batch_size)
    else:
        from segconf.devices import resolve_device
        from segconf.inference.torch_model import TorchModel

        model = TorchModel(choice.path, device=resolve_device(device), batch_size=batch_size)
    model.choice = choice
    return model
