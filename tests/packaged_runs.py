"""Run folders that are packaged: untrained, with a calibration and a detector."""

import copy

import torch

from segconf.calibration.stored import Calibration, StoredThreshold, write_calibration
from segconf.checkpoints.weights import save_checkpoint, weights_hash
from segconf.config.schema import ExperimentConfig
from segconf.models.unet import build_unet
from segconf.ood.detector import OODDetector, save_detector

FEATURES = 128 + 256  # channels of ResNet18 at an eighth and a sixteenth


def calibrated_run(folder, *, method="softmax", members=1, grid=(96, 128), seed=0):
    """A run folder with random weights, a temperature of 1.7, a threshold and a detector."""
    config = ExperimentConfig.model_validate(
        {
            "data": {"size": [32, 64]},
            "model": {"encoder": "resnet18", "encoder_weights": "none", "classes": 3},
            "training": {"method": method, "members": members},
        }
    )
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for number in range(members):
        torch.manual_seed(seed + number)
        network = build_unet(config.model)
        with torch.no_grad():
            for name, value in network.named_buffers():  # a normalisation that does something
                if name.endswith("running_mean"):
                    value.normal_(0, 0.1, generator=generator)
                if name.endswith("running_var"):
                    value.uniform_(0.5, 1.5, generator=generator)
        weights = copy.deepcopy(network.state_dict())
        if members > 1:
            member = folder / "members" / str(number)
            member.mkdir(parents=True)
            save_checkpoint(member / "best.safetensors", weights, config)
        if number == 0:
            save_checkpoint(folder / "best.safetensors", weights, config, temperature=1.7)
    tied_to = weights_hash(folder)
    write_calibration(folder, Calibration(weights_sha256=tied_to, threshold=threshold()))
    known, others = (torch.rand(50, FEATURES, generator=generator) for _ in range(2))
    save_detector(folder / "ood.safetensors", OODDetector.fit(known, others, grid), tied_to)
    return folder


def threshold():
    """A risk threshold that is neither the default nor a round number."""
    return StoredThreshold(
        confidence=0.4321,
        max_risk=0.05,
        risk=0.04,
        risk_interval=(0.03, 0.05),
        coverage=0.9,
        coverage_interval=(0.8, 0.95),
        right_below=0.6,
        images=12,
    )
