"""Where a run computes."""

import os

import torch

from segconf.errors import ConfigError


def resolve_device(name: str, precision: str = "float32") -> torch.device:
    """Device of a name; `auto` is the best one at hand, per process under torchrun."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        if name == "cpu" and torch.backends.mps.is_available():
            name = "mps"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            f"training.device = {name}: no CUDA device is visible to PyTorch. Use --device cpu, or "
            "check the driver with `nvidia-smi`."
        )
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("training.device = mps: not available here. Use --device cpu.")
    if precision != "float32" and not name.startswith("cuda"):
        raise ConfigError(
            f"training.precision = {precision}: needs CUDA (the device is {name}). "
            "Use --set training.precision=float32."
        )
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    return torch.device(name)


def seed_everything(seed: int, device: torch.device) -> torch.Generator:
    """Seed the global generators once, and make the one that draws ranking pairs."""
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)
