"""Run folders that are packaged: untrained, with a calibration and a detector."""

import copy

import torch

from segconf.calibration.stored import (
    Calibration,
    StoredErrorRates,
    StoredThreshold,
    write_calibration,
)
from segconf.checkpoints.weights import load_checkpoint, save_checkpoint, weights_hash
from segconf.config.schema import ExperimentConfig
from segconf.models.unet import build_unet
from segconf.ood.detector import Described, OODDetector, save_detector
from segconf.ood.features import chosen_stages, pooled_features


def calibrated_run(
    folder, *, method="softmax", members=1, grid=(96, 128), seed=0, encoder="resnet18"
):
    """A run folder with random weights, a temperature of 1.7, a threshold and a detector."""
    config = ExperimentConfig.model_validate(
        {
            "data": {"size": [32, 64]},
            "model": {"encoder": encoder, "encoder_weights": "none", "classes": 3},
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
    calibration = Calibration(
        weights_sha256=tied_to, threshold=threshold(), error_rates=error_rates()
    )
    write_calibration(folder, calibration)
    band = grid if grid == (32, 64) else (40, 60)
    detector = fitted_detector(load_checkpoint(folder).model, grid, band)
    save_detector(folder / "ood.safetensors", detector, tied_to)
    return folder


def fitted_detector(network, grid, band):
    """A detector of noise with different contrasts."""
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(24, 3, *grid, generator=generator)
    contrast = torch.rand(24, 1, 1, 1, generator=generator) + 0.5
    with torch.no_grad():
        maps = network.eval().encoder(contrast * noise)
        found = pooled_features(maps)[:, None]
    channels = tuple(stage.shape[1] for stage in chosen_stages(maps))
    return OODDetector.fit(found[:16], found[16:], Described(grid, band, channels))


def threshold():
    """A risk threshold that is neither the default nor a round number."""
    return StoredThreshold(
        confidence=0.4321,
        max_risk=0.05,
        risk=0.04,
        risk_interval=(0.03, 0.05),
        coverage=0.9,
        coverage_interval=(0.8, 0.95),
        images=12,
    )


def error_rates():
    """Pixels below a confidence of 0.4321 were wrong more than 1 time in 10."""
    return StoredErrorRates(confidence=(1 / 3, 0.4321), pixels=(100, 900), wrong=(50, 9), images=12)
