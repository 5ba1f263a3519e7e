"""Where a prediction computes."""

import os

import torch

from segconf.errors import ConfigError


def find_device(name: str) -> torch.device:
    """Device of a name; `auto` is the best one at hand, one per process under torchrun.

    Raises:
        ConfigError: the name is unknown, or the device is not there.
    """
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if has_cuda else "mps" if has_mps else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"device {name}: unknown. Give auto, cpu, cuda, cuda:N or mps."
        ) from error
    if {"cuda": not has_cuda, "mps": not has_mps}.get(device.type, False):
        raise ConfigError(f"device {name}: not available here. Use --device cpu.")
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    return device
