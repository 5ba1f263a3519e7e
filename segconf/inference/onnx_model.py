"""A packaged network, computed by ONNX Runtime without PyTorch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.confidence import FloatArray
from segconf.devices import usable_processors
from segconf.errors import CheckpointError, ConfigError
from segconf.images.types import ByteArray, Size
from segconf.inference.choice import ModelChoice
from segconf.inference.model import GridOutput, Model
from segconf.inference.packaged import Packaged
from segconf.results.maps import Band

INSTALL = "pip install 'segconf[onnx]'"
_ACCELERATOR_BATCH = 16
_ALL_THREADS = 0
Provider = str | tuple[str, dict[str, int]]
"""Of ONNX Runtime: its name, or also its options."""


class OnnxModel(Model):
    """An ONNX file that `segconf package` wrote, as a model.

    The graph can resize by itself. Here it gets images on its grid, so that files are read, masks
    are resized and results are written as for every other model.
    """

    packages = ("onnxruntime",)

    def __init__(self, path: Path, *, device: str = "auto", batch_size: int | None = None) -> None:
        """Load a file; see `load_model`.

        Raises:
            CheckpointError: it is missing, damaged, or not a packaged network.
            ConfigError: ONNX Runtime is not installed, or lacks the device.
        """
        self.choice = ModelChoice(path, "as asked for")
        self.file = path
        self._providers = _providers(device)
        self._sessions: dict[int, Any] = {}
        self._threads = _ALL_THREADS
        packaged = Packaged.read(self._session().get_modelmeta().custom_metadata_map, path)
        self.packaged = packaged
        self.config = packaged.config
        self.weights_sha256 = packaged.weights_sha256
        self.calibration = packaged.calibration
        self.temperature, self.scaling = packaged.temperature, packaged.scaling
        self.detector = packaged.detector
        on_cpu = self._providers[0] == "CPUExecutionProvider"
        self._batch_size = batch_size or (1 if on_cpu else _ACCELERATOR_BATCH)

    @property
    def passes(self) -> int:
        """One: the networks of an ensemble are one graph."""
        return 1

    @property
    def batch_size(self) -> int:
        """Images that the network sees at once."""
        return self._batch_size

    @property
    def serves_threads(self) -> bool:
        """A session has no state between calls."""
        return True

    @contextmanager
    def single_threaded(self) -> Iterator[None]:
        """A context in which every call is computed by the thread that makes it."""
        before, self._threads = self._threads, 1
        self._session()  # before several threads ask for it
        try:
            yield
        finally:
            self._threads = before

    @property
    def feature_grid(self) -> Size:
        """The band: the graph goes from there to the grid of the detector by itself."""
        if self.detector is None:
            raise ValueError("there is no detector")
        return self.detector.band

    def grid_logits(self, pixels: ByteArray) -> FloatArray:
        """Logits (B, K, h, w) of pixels (B, h, w, C) on the network's grid, calibrated.

        Raises:
            CheckpointError: the output is not finite.
        """
        (logits,) = self._run(["logits"], pixels)
        if not np.isfinite(logits).all():
            raise CheckpointError(
                f"{self.file}: the network's output is not finite, so its weights are of no use. "
                "Train it again with a smaller training.learning_rate."
            )
        return logits

    def grid_output(self, pixels: ByteArray, feature_pixels: ByteArray | None) -> GridOutput:
        """Logits and out-of-distribution scores.

        Args:
            pixels: (B, h, w, C) on the network's grid.
            feature_pixels: the same images from `network_input`; None where that is.
        """
        if self.detector is None:
            (logits,) = self._run(["logits"], pixels)
            return GridOutput(logits, np.full(len(logits), np.nan))
        if feature_pixels is None:
            logits, scores = self._run(["logits", "ood_score"], pixels)
        else:
            (logits,) = self._run(["logits"], pixels)
            (scores,) = self._run(["ood_score"], feature_pixels)
        return GridOutput(logits, scores)

    def tiled_bands(self, pixels: ByteArray) -> Iterator[Band]:  # noqa: ARG002 - refused
        """A packaged network is refused for tiles."""
        raise ConfigError(
            f"{self.file}: a packaged network predicts the whole frame at once. For tiles give the "
            "run folder that it was made of."
        )

    def _run(self, names: Sequence[str], pixels: ByteArray) -> list[NDArray[Any]]:
        """Outputs of the graph for images (B, h, w, C); only what they need is computed."""
        from onnxruntime import RunOptions

        options = RunOptions()
        options.only_execute_path_to_fetches = True
        session = self._session()
        parts = [
            session.run(
                names,
                {"image": np.ascontiguousarray(pixels[start : start + self._batch_size])},
                options,
            )
            for start in range(0, len(pixels), self._batch_size)
        ]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _session(self) -> Any:
        """The session with the number of threads that is wanted now."""
        if self._threads not in self._sessions:
            self._sessions[self._threads] = _open(self.file, self._providers, self._threads)
        return self._sessions[self._threads]


def graph_outputs(content: bytes, inputs: Mapping[str, ByteArray]) -> dict[str, NDArray[Any]]:
    """All outputs of a graph that is no file yet, by name.

    Raises:
        ConfigError: ONNX Runtime is not installed.
    """
    providers = _providers("cpu")
    from onnxruntime import InferenceSession

    session = InferenceSession(content, providers=providers)
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _open(path: Path, providers: Sequence[Provider], threads: int) -> Any:
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.capi import onnxruntime_pybind11_state as states

    if not path.is_file():
        raise CheckpointError(f"{path}: no such file. Give a run folder, or a packaged network.")
    options = SessionOptions()
    options.intra_op_num_threads = threads or usable_processors()
    options.log_severity_level = 3
    try:
        return InferenceSession(str(path), options, providers=list(providers))
    except (
        states.Fail,
        states.InvalidArgument,
        states.InvalidGraph,
        states.InvalidProtobuf,
        states.NoModel,
        states.NotImplemented,
        states.RuntimeException,
    ) as error:
        raise CheckpointError(
            f"{path}: ONNX Runtime cannot read it ({' '.join(str(error).split())}). Make it again "
            "with: segconf package RUN --format onnx"
        ) from error


def _providers(device: str) -> list[Provider]:
    """Where ONNX Runtime computes, by the name of a device."""
    kind, colon, number = device.partition(":")
    if kind not in ("auto", "cpu", "cuda", "mps") or (colon and not number.isdecimal()):
        raise ConfigError(f"device {device}: unknown. Give auto, cpu, cuda or cuda:N.")
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(
            f"ONNX Runtime is not installed, which a packaged network needs. Install it: {INSTALL}"
        ) from error
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    if device == "cpu" or (device == "auto" and not has_cuda):
        return ["CPUExecutionProvider"]
    if not has_cuda or kind not in ("auto", "cuda"):
        raise ConfigError(
            f"device {device}: this ONNX Runtime computes on the CPU only. Use the device cpu."
        )
    chosen = {"device_id": int(number)} if number else {}
    return [("CUDAExecutionProvider", chosen), "CPUExecutionProvider"]
