"""Tensors in safetensors files, which are either complete or absent."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError
from segconf.files import replacing
from segconf.models.unet import build_model


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and what there is to say about them.

    Raises:
        OSError: when the disk is full or the folder cannot be written.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(plain, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{path.name}: {error}") from error


def read_tensors(path: Path, *, way_out: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors of a file, memory-mapped: they occupy memory only while they are used; metadata.

    Raises:
        CheckpointError: when the file cannot be read; ends with the way out.
    """
    try:
        with safe_open(path, framework="pt") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
            return tensors, content.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: not a readable safetensors file ({error}). {way_out}"
        ) from error


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


def weights_hash(run_path: Path) -> str:
    """SHA-256 of the weights of a run, or of a weights file, whatever its metadata says.

    Over the tensors of `best.safetensors`: names, dtypes, shapes and bytes, sorted by name. A run
    with members or snapshots has the hash over the hashes of all its files, sorted by path.

    Raises:
        CheckpointError: when there is no such file, or it cannot be read.
    """
    best = _weights_file(run_path)
    patterns = ("members/*/best.safetensors", "snapshots/*.safetensors")
    others = [file for pattern in patterns for file in best.parent.glob(pattern)]
    hashes = [_tensors_hash(file) for file in sorted([best, *others])]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _tensors_hash(file: Path) -> str:
    tensors, _ = read_tensors(file, way_out=WAY_OUT)
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


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
