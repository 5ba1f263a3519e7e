"""Runs on small NIfTI volumes of three classes, with a network whose prediction can be told."""

import nibabel
import numpy as np
import torch
from torch import nn

from segconf.checkpoints.weights import save_checkpoint
from segconf.data.datasets.dataset import find_cases
from segconf.data.splits import split_cases
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder
from tests.training_runs import settings

LEVELS = (20, 120, 220)
"""Intensity of each class."""


class ThreeGreys(nn.Module):
    """Logits of three classes: how near a pixel is to their grey values after normalisation."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centres", torch.tensor([-1.7, 0.1, 2.0]))

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)  # (B, 1, h, w)
        return -2 * (grey - self.centres[:, None, None]) ** 2


def volume(seed, slices=4, side=32):
    """Voxels and mask (X, Y, Z) of two blocks in noise; the last slice holds none of them."""
    generator = np.random.default_rng(seed)
    mask = np.zeros((side, side, slices), np.uint8)
    first = 4 + seed % 5
    mask[first : first + 9, 5:15, : slices - 1] = 1
    mask[first + 8 : first + 16, 12:24, 1 : slices - 1] = 2
    voxels = np.take(LEVELS, mask) + generator.normal(0, 35, mask.shape)
    return np.clip(voxels, 0, 255), mask


def write_volumes(root, count, *, first=0, slices=4):
    """`images/` and `masks/` of `count` volumes."""
    for number in range(first, first + count):
        voxels, mask = volume(number, slices)
        for folder, values in (("images", voxels.astype(np.float32)), ("masks", mask)):
            (root / folder).mkdir(parents=True, exist_ok=True)
            file = root / folder / f"v{number:02d}.nii.gz"
            nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), file)
    return root


def volume_run(parent, *, training=3, validation=4, test=3, **changes):
    """`parent/run` on `parent/volumes`; build it with `use_network(monkeypatch, ThreeGreys)`."""
    root = write_volumes(parent / "volumes", training)
    write_volumes(root / "val", validation, first=20)
    write_volumes(root / "test", test, first=40, slices=5)
    config = settings(
        data__labeled=None,
        data__intensity_window=[0.0, 255.0],
        model__classes=3,
        model__encoder="resnet18",
        training__method="softmax",
        training__ood_detector=False,
        **changes,
    )
    split = split_cases(find_cases(str(root)), labeled=None, labeled_list=None, seed=0)
    run = RunFolder(parent / "run")
    run.create(config, RunData.of(str(root), None, split), torch.device("cpu"))
    save_checkpoint(run.best_file, ThreeGreys().state_dict(), config)
    return run
