"""A trained model and all that is needed to use it, in one safetensors file."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from segconf.config import ExperimentConfig
from segconf.errors import CheckpointError
from segconf.models import build_model
from segconf.tensors import read_tensors, write_tensors

BEST = "best.safetensors"
WAY_OUT = "Give the weights file that `segconf train` wrote, or train again."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in evaluation mode, the configuration it was trained with, and its calibration."""

    path: Path
    model: nn.Module
    config: ExperimentConfig
    temperature: float


def save_checkpoint(
    path: Path, weights: dict[str, Tensor], config: ExperimentConfig, *, temperature: float = 1.0
) -> None:
    """Write weights with the configuration and the temperature in the metadata.

    Raises:
        OSError: when the disk is full or the folder cannot be written.
    """
    metadata = {
        "format": "segconf 1",
        "config": config.model_dump_json(),
        "temperature": repr(temperature),
    }
    write_tensors(path, weights, metadata)


def store_temperature(run_path: Path, temperature: float) -> None:
    """Exchange the temperature of a run, or of a weights file; its weights stay as they are.

    Raises:
        CheckpointError: when there is no such file, or it cannot be read or written.
    """
    file = _weights_file(run_path)
    tensors, metadata = read_tensors(file, way_out=WAY_OUT)
    try:
        write_tensors(file, tensors, metadata | {"temperature": repr(temperature)})
    except OSError as error:
        raise CheckpointError(
            f"{file}: cannot be written ({error.strerror or error}). Make its folder writable, and "
            "free some space."
        ) from error


def load_checkpoint(path: Path, *, device: torch.device | None = None) -> Checkpoint:
    """Read a run folder, or a weights file of one.

    Raises:
        CheckpointError: when there is no such file, or it is not one that segconf wrote.
    """
    file = _weights_file(path)
    weights, metadata = read_tensors(file, way_out=WAY_OUT)
    try:
        config = ExperimentConfig.model_validate(json.loads(metadata["config"]))
        temperature = float(metadata["temperature"])
    except (KeyError, ValueError, ValidationError) as error:
        raise CheckpointError(
            f"{file}: was not written by this version of segconf (the configuration in it cannot "
            "be read). Use the version that trained it, or train again."
        ) from error
    model = build_model(config.model, method=config.training.method, pretrained=False)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"{file}: the weights are not those of the {config.model.encoder} network that its "
            "configuration names. Put back the file that the run wrote, or train again."
        ) from error
    model = model.to(device or torch.device("cpu")).eval()
    return Checkpoint(file, model, config, temperature)


def _weights_file(path: Path) -> Path:
    file = path / BEST if path.is_dir() else path
    if not file.is_file() and (file.parent / "members").is_dir():
        raise CheckpointError(
            f"{file.parent}: not all members of this ensemble are trained yet. Go on with: "
            f"segconf train --resume {file.parent}"
        )
    if not file.is_file():
        raise CheckpointError(
            f"{file}: no such file. Give a run folder in which a training has finished an epoch, "
            "or its weights file."
        )
    return file
