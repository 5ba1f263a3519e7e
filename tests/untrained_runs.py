"""Run folders without a training: a UNet with random weights on discs of the size of its grid."""

import torch

from segconf.checkpoints.weights import save_checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.splits import split_cases
from segconf.models.unet import build_unet
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder
from tests.conftest import write_folder


def untrained_run(parent, *, training, validation, test):
    """`parent/run` with the network that is returned, and `parent/discs` with so many images."""
    root = write_folder(parent / "discs", training)
    write_folder(root / "val", validation, first=100)
    write_folder(root / "test", test, first=200)
    config = ExperimentConfig.model_validate(
        {"data": {"size": [32, 32]}, "model": {"encoder": "resnet18", "encoder_weights": "none"}}
    )
    split = split_cases(
        find_cases(str(root), options=FindOptions()), labeled=None, labeled_list=None, seed=0
    )
    folder = RunFolder(parent / "run")
    folder.create(config, RunData.of(str(root), None, split), torch.device("cpu"))
    torch.manual_seed(0)
    network = build_unet(config.model)
    save_checkpoint(folder.best_file, network.state_dict(), config)
    return folder, network
