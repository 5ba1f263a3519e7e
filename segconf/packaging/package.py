"""The entry: a run as one file, or one folder, that other programs use."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segconf.confidence import probabilities_of
from segconf.devices import resolve_device
from segconf.errors import CheckpointError, ConfigError
from segconf.files import make_folder, open_regular, replacing, unwritable
from segconf.inference.choice import choose_model
from segconf.inference.onnx_model import INSTALL, OnnxModel
from segconf.inference.torch_model import TorchModel
from segconf.outputs import check_output, check_output_file
from segconf.packaging.description import packaged

TOLERANCE = 1e-3
"""Largest difference of a probability between a packaged network and its run."""
_PROBES = 2
PRODUCER = "segconf"
"""Stands in the first bytes of a file that is written here."""
_FIRST_BYTES = 64
_PICTURE_CHANNELS = (1, 3)


@dataclass(frozen=True, slots=True)
class Package:
    """What was written.

    Attributes:
        path: the file or the folder.
        size: in bytes.
        difference: largest difference of a probability to the run, on random pictures.
    """

    path: Path
    size: int
    difference: float


def package_onnx(run: Path | str, out: Path | str) -> Package:
    """Write a run as one ONNX file: network, preparation of its input, outputs, metadata.

    The file is compared with the run before it gets its name.

    Args:
        run: run folder, weights file or name of a pretrained model.
        out: the file, `.onnx`.

    Raises:
        ConfigError: the method takes several passes, or packages are missing.
        CheckpointError: the file predicts something else than the run.
        FileError: it lies in the run, is another file already, or cannot be written.
    """
    path = Path(out)
    if path.suffix != ".onnx":
        raise ConfigError(f"out = {path}: an ONNX file is called NAME.onnx.")
    chosen = choose_model(run).path
    check_output_file(path, inputs=[chosen], is_own=_is_packaged)
    check_installed("onnx", "onnxscript", "onnxruntime")
    import onnx

    from segconf.packaging.onnx_graph import build_graph

    model = masks_model(chosen)
    graph = build_graph(model)
    about = packaged(model)
    graph.producer_name = PRODUCER
    graph.doc_string = about.model_card
    onnx.helper.set_model_props(graph, about.metadata())
    make_folder(path.parent)
    with replacing(path) as temporary:
        temporary.write_bytes(graph.SerializeToString())
        difference = compare(model, OnnxModel(temporary, device="cpu"))
    return Package(path, path.stat().st_size, difference)


def package_monai(run: Path | str, out: Path | str) -> Package:
    """Write a run as a MONAI bundle: configs, TorchScript network, model card.

    Args:
        run: run folder, weights file or name of a pretrained model.
        out: the folder, which is new or empty.

    Raises:
        ConfigError: the method takes several passes, or channels are neither grey nor RGB.
        FileError: the folder holds something, lies in the run, or cannot be written.
    """
    folder = Path(out)
    chosen = choose_model(run).path
    check_output(folder, inputs=[chosen])
    from segconf.packaging.monai_bundle import write_bundle

    model = masks_model(chosen)
    if model.config.model.channels not in _PICTURE_CHANNELS:
        raise ConfigError(
            f"{model.file}: has {model.config.model.channels} channels; the pipeline of a bundle "
            "reads pictures of 1 or 3. Package it as ONNX."
        )
    try:
        difference = write_bundle(model, packaged(model), folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Package(folder, size, difference)


def masks_model(run: Path) -> TorchModel:
    """The model of a run that predicts masks; there is no package for labels yet."""
    model = TorchModel(run, device=resolve_device("cpu"))
    if model.config.data.task == "classification":
        raise ConfigError(
            f"{model.file}: predicts labels, and packages are written for masks. Use the run "
            "folder: segconf predict IMAGES --out FOLDER --checkpoint RUN."
        )
    return model


def compare(model: TorchModel, other: OnnxModel) -> float:
    """Largest difference of a probability on random pictures.

    Raises:
        CheckpointError: it is more than `TOLERANCE`.
    """
    rng = np.random.default_rng(0)
    shape = (_PROBES, *model.config.data.size, model.config.model.channels)
    pixels = rng.integers(0, 256, shape, np.uint8)
    own, packaged_one = (
        probabilities_of(one.grid_logits(pixels).swapaxes(0, 1)) for one in (model, other)
    )
    difference = float(np.abs(own - packaged_one).max())
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"{model.file}: the packaged network predicts other probabilities (by {difference:g}), "
            "so it was not written. Use the run folder."
        )
    return difference


def _is_packaged(path: Path) -> bool:
    """Whether a file is one that an earlier call has written."""
    try:
        with open_regular(path) as file:
            return PRODUCER.encode() in file.read(_FIRST_BYTES)
    except OSError:
        return False


def check_installed(*modules: str) -> None:
    """Refuse to begin without the packages of the extra `onnx`."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"packaging needs {', '.join(missing)}, which is not installed. Install it: {INSTALL}"
        )
