"""One seed decides everything random."""

import torch


def seed_everything(seed: int, device: torch.device) -> torch.Generator:
    """Seed the global generators once, and make the one that draws ranking pairs."""
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)
