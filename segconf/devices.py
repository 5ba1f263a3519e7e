"""Devices, threads and processors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from segconf.errors import ConfigError

if TYPE_CHECKING:
    import torch


def resolve_device(name: str, precision: str = "float32") -> torch.device:
    """Device of a name; `auto` is the best one at hand, one per process under torchrun.

    Raises:
        ConfigError: the name is unknown, the device is not there, or it lacks the precision.
    """
    import torch

    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if has_cuda else "mps" if has_mps else "cpu"
    if name == "cuda" and has_cuda and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    unknown = ConfigError(f"device {name}: unknown. Give auto, cpu, cuda, cuda:N or mps.")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise unknown from error
    if device.type not in ("cpu", "cuda", "mps"):
        raise unknown
    if device.type == "cuda" and not has_cuda:
        raise ConfigError(
            f"device {name}: no CUDA device is visible to PyTorch. Use the device cpu, or check "
            "the driver with `nvidia-smi`."
        )
    if device.type == "mps" and not has_mps:
        raise ConfigError("device mps: not available here. Use the device cpu.")
    if precision != "float32" and device.type != "cuda":
        raise ConfigError(
            f"training.precision = {precision}: needs CUDA (the device is {name}). "
            "Use training.precision = float32."
        )
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if (device.index or 0) >= count:
        raise ConfigError(
            f"device {name}: there are {count} such devices, counted from 0. "
            f"Give {device.type}:{count - 1} or less, or {device.type}."
        )
    return device


_LOCK = threading.Lock()


@contextmanager
def single_threaded() -> Iterator[None]:
    """Borrow the number of threads of torch, set it to one, and give it back."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """The same for one caller at a time, since the number is that of the whole process.

    Threads that share a piece of work wait for each other after every operation, and threads with
    pieces of their own wait for the one table that they count in: one thread is faster.
    """
    with _LOCK, single_threaded():
        yield


def usable_processors() -> int:
    """Processors that this process may use; all of them where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
