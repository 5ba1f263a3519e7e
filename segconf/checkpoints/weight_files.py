"""Files of weights: safetensors that are complete or absent, and snapshots along a training."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError
from segconf.files import check_regular, described, make_folder, remove_leftovers, replacing

_LENGTH_BYTES = 8
"""Of the number at the start of a safetensors file: how long its header is."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in evaluation mode, its configuration, and the calibrator in its file.

    The calibrator is a temperature, or text where it is more than that; neither is checked yet.
    """

    path: Path
    model: nn.Module
    config: ExperimentConfig
    temperature: float
    calibrator: str | None = None


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and what there is to say about them; the same content gives the same bytes.

    Raises:
        FileError: when the disk is full or the folder cannot be written.
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
        check_regular(path)
        with safe_open(path, framework="pt") as content:
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
            return tensors, content.metadata() or {}
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path}: not a readable safetensors file ({described(error)}). {way_out}"
        ) from error


FOLDER = "snapshots"


Precision = Literal["float16", "float32"]


def snapshot_file(run: Path, epoch: int) -> Path:
    """Where the snapshot after a number of finished epochs lies."""
    return run / FOLDER / f"epoch-{epoch:04d}.safetensors"


def kept_snapshots(run: Path) -> dict[int, Path]:
    """Files of the snapshots of a run by the number of finished epochs, in order."""
    files = sorted((run / FOLDER).glob("epoch-*.safetensors"))
    numbers = [(file.stem.removeprefix("epoch-"), file) for file in files]
    return {int(number): file for number, file in numbers if number.isdecimal()}


def write_snapshot(file: Path, weights: dict[str, Tensor], precision: Precision) -> None:
    """Write weights and buffers completely or not at all.

    In half precision are those that take the space and allow it: tensors of two and more
    dimensions whose values fit. BatchNorm statistics and biases stay exact, integers are integers.

    Raises:
        FileError: when the disk is full or the folder cannot be written.
    """
    make_folder(file.parent)
    if precision == "float16":
        weights = {name: halved(value) for name, value in weights.items()}
    write_tensors(file, weights, {"format": "segconf snapshot 1"})


def halved(value: Tensor) -> Tensor:
    """In half precision where it has two or more dimensions and its values allow it."""
    if value.ndim < 2 or not value.is_floating_point():  # noqa: PLR2004 - a matrix, or more
        return value
    half = value.half()
    return half if half.isfinite().all() else value


def check_finite(tensors: Mapping[str, Tensor], path: Path, way_out: str) -> None:
    """Refuse a file with NaN or infinity among its numbers.

    Raises:
        CheckpointError: naming the first such tensor.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(f"{path}: {name} holds NaN or infinity. {way_out}")


def read_weights(file: Path) -> dict[str, Tensor]:
    """Weights of a file, memory-mapped."""
    return read_tensors(file, way_out="Put the file of the run back, or train again.")[0]


def remove_later(run: Path, epoch: int) -> None:
    """Remove snapshots of later epochs from a run that continues after an epoch."""
    for later, file in kept_snapshots(run).items():
        if later > epoch:
            file.unlink()
    remove_leftovers(run / FOLDER, age=0)


def snapshot_bytes(weights: int, count: int, precision: Precision) -> int:
    """Space on the disk for the snapshots of a network with so many bytes of weights."""
    return count * weights // (2 if precision == "float16" else 1)


def load_into(network: nn.Module, file: Path) -> None:
    """Give a network the weights of a file, in its own precision and on its own device.

    Raises:
        CheckpointError: when the file cannot be read, or belongs to another network.
    """
    new, own = read_weights(file), network.state_dict()
    if {name: value.shape for name, value in new.items()} != {
        name: value.shape for name, value in own.items()
    }:
        raise CheckpointError(f"{file}: not the weights of the network of this run.")
    check_finite(new, file, "Put the file of the run back, or train again.")
    for name, value in new.items():
        # To the device first, in half precision if it is: less to move.
        own[name].copy_(value.to(own[name].device))
