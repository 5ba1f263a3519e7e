"""A trained model and all that is needed to use it, in one safetensors file; its hash."""

import hashlib
import logging
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from segconf.calibration.calibrators import Calibrator, TemperatureScaling, calibrator_in
from segconf.checkpoints.weight_files import (
    Checkpoint,
    check_finite,
    read_tensors,
    write_tensors,
)
from segconf.config.ranges import TEMPERATURES
from segconf.config.records import parse_json
from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError
from segconf.methods.method import method_of
from segconf.models.pretrained import find_model
from segconf.runs.run_folder import way_to_a_run

logger = logging.getLogger(__name__)

BEST = "best.safetensors"
CALIBRATOR = "calibrator"
"""Key of the metadata under which a calibrator is kept that is more than a temperature."""


WAY_OUT = "Give the weights file that `segconf train` wrote, or train again."


def save_checkpoint(
    path: Path, weights: dict[str, Tensor], config: ExperimentConfig, *, temperature: float = 1.0
) -> None:
    """Write weights with the configuration and the temperature in the metadata.

    Raises:
        FileError: when the disk is full or the folder cannot be written.
    """
    metadata = {
        "format": "segconf 1",
        "config": config.model_dump_json(),
        "temperature": repr(temperature),
    }
    write_tensors(path, weights, metadata)


def store_calibrator(run_path: Path, calibrator: Calibrator) -> None:
    """Exchange the calibrator of a run, or of a weights file; its weights stay as they are.

    Raises:
        CheckpointError: when there is no such file, or it cannot be read.
        FileError: when it cannot be written.
    """
    file = weights_file(run_path)
    tensors, metadata = read_tensors(file, way_out=WAY_OUT)
    metadata = {key: text for key, text in metadata.items() if key != CALIBRATOR}
    metadata["temperature"] = repr(calibrator.temperature)
    if not isinstance(calibrator, TemperatureScaling):
        metadata[CALIBRATOR] = calibrator.model_dump_json()
    write_tensors(file, tensors, metadata)


def stored_calibrator(checkpoint: Checkpoint) -> Calibrator:
    """The calibrator in a weights file.

    Raises:
        CheckpointError: it cannot be used.
    """
    low, high = TEMPERATURES
    way_out = f"Fit it again with: segconf calibrate {checkpoint.path.parent}"
    if not low <= checkpoint.temperature <= high:
        raise CheckpointError(
            f"{checkpoint.path}: temperature {checkpoint.temperature} is not between {low} and "
            f"{high}. {way_out}"
        )
    if checkpoint.calibrator is None:
        return TemperatureScaling(temperature=checkpoint.temperature)
    try:
        return calibrator_in(checkpoint.calibrator)
    except ValueError as error:
        raise CheckpointError(
            f"{checkpoint.path}: its calibrator cannot be read. {way_out}"
        ) from error


def load_checkpoint(path: Path, *, device: torch.device | None = None) -> Checkpoint:
    """Read a run folder, or a weights file of one.

    Raises:
        CheckpointError: when there is no such file, or it is not one that segconf wrote.
    """
    file = weights_file(path)
    weights, metadata = read_tensors(file, way_out=WAY_OUT)
    config, temperature = _described(file, metadata)
    check_finite(weights, file, "Put back the file that the run wrote, or train again.")
    model = method_of(config).build(config.model, config.data.task, pretrained=False)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"{file}: the weights are not those of the {config.model.encoder} network that its "
            "configuration names. Put back the file that the run wrote, or train again."
        ) from error
    model = model.to(device or torch.device("cpu")).eval()
    return Checkpoint(file, model, config, temperature, metadata.get(CALIBRATOR))


HEAD = "segmentation_head."


def start_from(network: nn.Module, given: str) -> None:
    """Give a new network the weights of a trained one, for fine-tuning.

    Where the number of classes differs, the last layer keeps its random weights, and a warning says
    so.

    Args:
        network: of the same architecture.
        given: name of a pretrained model, run folder or weights file.

    Raises:
        CheckpointError: there is no such model, or it is of another architecture.
    """
    file = weights_file(find_model(given))
    weights, metadata = read_tensors(file, way_out=WAY_OUT)
    check_finite(weights, file, WAY_OUT)
    own = network.state_dict()
    differ = {
        name
        for name in own.keys() | weights.keys()
        if name not in own or name not in weights or own[name].shape != weights[name].shape
    }
    if any(not name.startswith(HEAD) for name in differ):
        config, _ = _described(file, metadata)
        raise CheckpointError(
            f"training.start_from = {given}: is a {config.model.encoder} network for "
            f"{config.model.channels} channels and does not fit the network of this run. Set "
            f"model.encoder={config.model.encoder} and model.channels={config.model.channels}, or "
            "start from another model."
        )
    if differ:
        logger.warning(
            "%s: has other classes; the last layer starts from random weights", file.parent
        )
    kept = {name: value for name, value in weights.items() if name not in differ}
    network.load_state_dict(kept, strict=False)


def weights_hash(path: Path) -> str:
    """SHA-256 of all weights that a prediction of a run, or of a weights file, uses.

    Only names, types, shapes and values of the tensors count, not the metadata: a calibration does
    not change it. Where a method uses several files, it is the hash of their hashes.
    """
    file = weights_file(path)
    _, metadata = read_tensors(file, way_out=WAY_OUT)
    config, _ = _described(file, metadata)
    files = (file, *method_of(config).weight_files(file, config))
    hashes = [_tensors_hash(one) for one in files]
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _tensors_hash(file: Path) -> str:
    tensors, _ = read_tensors(file, way_out=WAY_OUT)
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _described(file: Path, metadata: dict[str, str]) -> tuple[ExperimentConfig, float]:
    """Configuration and temperature from the metadata of a weights file."""
    try:
        config = ExperimentConfig.model_validate(parse_json(metadata["config"]))
        temperature = float(metadata["temperature"])
    except (KeyError, ValueError, ValidationError) as error:
        raise CheckpointError(
            f"{file}: was not written by this version of segconf (the configuration in it cannot "
            "be read). Use the version that trained it, or train again."
        ) from error
    return config, temperature


def weights_file(path: Path) -> Path:
    """The weights file of a run folder, or the file itself.

    Raises:
        CheckpointError: there is none.
    """
    file = path / BEST if path.is_dir() else path
    if not file.is_file() and (file.parent / "members").is_dir():
        raise CheckpointError(
            f"{file.parent}: not all members of this ensemble are trained yet. Go on with: "
            f"segconf train --resume {file.parent}"
        )
    if not file.is_file():
        raise CheckpointError(
            f"{file}: no such file. "
            + way_to_a_run(
                path,
                "Give a run folder in which a training has finished an epoch, or its weights file.",
            )
        )
    return file
