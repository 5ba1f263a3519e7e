"""Snapshots: the weights of a network after some of its epochs, one compact file each."""

from pathlib import Path
from typing import Literal

from torch import Tensor, nn

from segconf.checkpoints.tensors import read_tensors, write_tensors
from segconf.errors import CheckpointError

FOLDER = "snapshots"

Precision = Literal["float16", "float32"]


def snapshot_file(run: Path, epoch: int) -> Path:
    """Where the snapshot after a number of finished epochs lies."""
    return run / FOLDER / f"epoch-{epoch:04d}.safetensors"


def kept_snapshots(run: Path) -> dict[int, Path]:
    """Files of the snapshots of a run by the number of finished epochs, in order."""
    files = sorted((run / FOLDER).glob("epoch-*.safetensors"))
    return {int(file.stem.removeprefix("epoch-")): file for file in files}


def write_snapshot(file: Path, weights: dict[str, Tensor], precision: Precision) -> None:
    """Write weights and buffers completely or not at all.

    In half precision are those that take the space and allow it: tensors of two and more
    dimensions whose values fit. BatchNorm statistics and biases stay exact, integers are integers.

    Raises:
        OSError: when the disk is full or the folder cannot be written.
    """
    file.parent.mkdir(exist_ok=True)
    if precision == "float16":
        weights = {name: _halved(value) for name, value in weights.items()}
    write_tensors(file, weights, {"format": "segconf snapshot 1"})


def _halved(value: Tensor) -> Tensor:
    if value.ndim < 2 or not value.is_floating_point():  # noqa: PLR2004 - a matrix, or more
        return value
    half = value.half()
    return half if half.isfinite().all() else value


def read_weights(file: Path) -> dict[str, Tensor]:
    """Weights of a file, memory-mapped."""
    return read_tensors(file, way_out="Put the file of the run back, or train again.")[0]


def remove_later(run: Path, epoch: int) -> None:
    """Remove snapshots of later epochs from a run that continues after an epoch."""
    for later, file in kept_snapshots(run).items():
        if later > epoch:
            file.unlink()
    for leftover in (run / FOLDER).glob(".*.part"):
        leftover.unlink()


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
    for name, value in new.items():
        # To the device first, in half precision if it is: less to move.
        own[name].copy_(value.to(own[name].device))
