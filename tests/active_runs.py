"""Runs for active learning: a network whose confidence can be told from the grey of a picture."""

import numpy as np
import torch
from torch import nn

from segconf.checkpoints.weights import save_checkpoint
from segconf.data.datasets.dataset import find_cases
from segconf.data.splits import split_cases
from segconf.history.predictions import PredictionHistory
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder
from tests.tiny_models import write_picture
from tests.training_runs import settings

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


class GreyNetwork(nn.Module):
    """Logits (-g, g) of the normalised grey value g; the encoder hands on the picture itself."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv2d(3, 3, 1, bias=False)
        self.encoder.weight.data = torch.eye(3).reshape(3, 3, 1, 1)
        self.encoder.register_forward_hook(lambda _module, _inputs, output: [output])

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)  # (B, 1, h, w)
        return torch.cat([-grey, grey], dim=1)


def grey_of(value):
    """Normalised grey of a pixel whose three channels have this value."""
    return float(((value / 255 - MEAN) / STD).mean())


def confidence_of(value):
    """Larger softmax probability of the logits (-g, g)."""
    return 1 / (1 + np.exp(-2 * abs(grey_of(value))))


def disc(inside, outside, size=(32, 32)):
    """A disc of one grey value on another, (H, W, 3)."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    centre = (np.array(size) - 1) / 2
    is_inside = np.hypot(rows - centre[0], columns - centre[1]) < min(size) / 4
    return np.where(is_inside, inside, outside)[..., None].repeat(3, axis=2).astype(np.uint8)


def write_run(root, pictures, *, labeled, **changes):
    """A run on these pictures by name, of which some are labeled; validation and test beside it."""
    data = root / "data"
    for name, pixels in pictures.items():
        write_picture(data / "images" / f"{name}.png", pixels)
        write_picture(data / "masks" / f"{name}.png", (pixels[..., 0] > 115).astype(np.uint8))
    for part in ("val", "test"):
        write_picture(data / part / "images" / "one.png", disc(250, 5))
        write_picture(data / part / "masks" / "one.png", (disc(1, 0)[..., 0]).astype(np.uint8))
    changes = {"data__labeled": None, "model__encoder": "resnet18"} | changes
    config = settings(**changes)
    split = split_cases(find_cases(str(data)), labeled=None, labeled_list=labeled, seed=0)
    run = RunFolder(root / "run")
    run.create(config, RunData.of(str(data), None, split), torch.device("cpu"))
    save_checkpoint(run.best_file, GreyNetwork().state_dict(), config)
    return run


def write_history(run, changing):
    """Three predictions of every training image; so many of its pixels change each time."""
    ids = run.data().training_ids()
    labeled = [ids.index(id_) for id_ in run.data().ids["labeled"]]
    history = PredictionHistory(len(ids), (32, 32), labeled=labeled, epochs=3)
    for epoch in range(3):
        predictions = torch.zeros(len(ids), 32 * 32, dtype=torch.uint8)
        for number, id_ in enumerate(ids):
            predictions[number, : changing.get(id_, 0)] = epoch % 2
        masks = torch.zeros(len(ids), 32, 32, dtype=torch.uint8)
        cases = torch.arange(len(ids))
        history.record(cases, predictions.view(-1, 32, 32), epoch=epoch, masks=masks)
    history.commit(run.history, epoch=3)
