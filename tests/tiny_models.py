"""Small checkpoints and pictures: untrained networks, and one that sees brightness."""

from pathlib import Path

import numpy as np
import PIL.Image
import torch
from torch import nn

from segconf.checkpoints.weights import save_checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.inference.model import Model, load_model
from segconf.inference.predictors import SinglePass
from segconf.models.unet import build_unet


def write_checkpoint(path: Path, *, classes=2, size=(32, 32), temperature=1.0) -> Path:
    """Weights file of an untrained ResNet18 UNet, the same for the same arguments."""
    config = ExperimentConfig.model_validate(
        {
            "model": {"encoder": "resnet18", "encoder_weights": "none", "classes": classes},
            "data": {"size": size},
        }
    )
    state = torch.get_rng_state()
    torch.manual_seed(0)
    model = build_unet(config.model, pretrained=False)
    torch.set_rng_state(state)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(path, model.state_dict(), config, temperature=temperature)
    return path


class Brightness(nn.Module):
    """Foreground where the normalised pixel is above average: logits (-g, g) of the grey value."""

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)  # (B, 1, h, w)
        return torch.cat([-grey, grey], dim=1)


def brightness_model(folder: Path, *, size=(32, 32), temperature=1.0) -> Model:
    """A model whose prediction can be told from the picture."""
    path = write_checkpoint(folder / "best.safetensors", size=size, temperature=temperature)
    model = load_model(path, device="cpu")
    model.predictor = SinglePass(Brightness())
    return model


def disc(height: int, width: int, *, seed=0) -> np.ndarray:
    """A bright disc on a dark, noisy ground, (H, W, 3)."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    radius = min(height, width) / 4
    inside = (rows - height / 2) ** 2 + (columns - width / 2) ** 2 < radius**2
    grey = np.where(inside, 210, 40)[..., None] + rng.integers(-20, 20, (height, width, 3))
    return grey.astype(np.uint8)


def write_picture(path: Path, pixels: np.ndarray, **options) -> Path:
    """Write a picture and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(pixels).save(path, **options)
    return path
