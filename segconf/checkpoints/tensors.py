"""Tensors in safetensors files, which are complete or absent, and the parts of a trained model."""

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError
from segconf.files import replacing

_LENGTH_BYTES = 8
"""Of the number at the start of a safetensors file: how long its header is."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in evaluation mode, its configuration, and the temperature in its file."""

    path: Path
    model: nn.Module
    config: ExperimentConfig
    temperature: float


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and what there is to say about them; the same content gives the same bytes.

    Raises:
        OSError: when the disk is full or the folder cannot be written.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(plain, temporary, metadata=metadata)
        except SafetensorError as error:
            raise OSError(f"{path.name}: {error}") from error
        _order_metadata(temporary)


def _order_metadata(path: Path) -> None:
    """Sort the metadata of a file, which safetensors writes in a random order."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) <= length:  # the same characters in another order
            file.seek(_LENGTH_BYTES)
            file.write(text.ljust(length))


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
