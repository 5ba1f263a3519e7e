"""What a run begins with: seeds, optimizer, averaged weights, an empty history."""

from pathlib import Path

import numpy as np
import torch
from torch import nn

from segconf.checkpoints.state import TrainingState, build_ema
from segconf.config.schema import ExperimentConfig
from segconf.data.training_set import TrainingPixels
from segconf.history.predictions import PredictionHistory
from segconf.history.probabilities import ProbabilityHistory
from segconf.methods.method import method_of
from segconf.training.optimizer import build_optimizer


def seed_everything(seed: int, device: torch.device) -> torch.Generator:
    """Seed the global generators once, and make the one that draws ranking pairs."""
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def initial_state(
    config: ExperimentConfig, model: nn.Module, generator: torch.Generator
) -> TrainingState:
    """The state before the first epoch."""
    training = config.training
    return TrainingState(
        model=model,
        optimizer=build_optimizer(model, training),
        scaler=torch.amp.GradScaler(enabled=training.precision == "float16"),
        generator=generator,
        ema=build_ema(model, training.ema_decay) if training.ema_decay else None,
    )


def empty_history(
    config: ExperimentConfig, pixels: TrainingPixels, folder: Path
) -> PredictionHistory:
    """The history that the method keeps, without a record."""
    images, size, epochs = len(pixels.rows), config.output_size, config.training.epochs
    labeled = np.searchsorted(pixels.rows, pixels.labeled_rows).tolist()
    scratch = folder if config.training.history_storage == "disk" else None
    if method_of(config).uses_past:
        classes = config.model.classes
        return ProbabilityHistory(
            images, size, labeled=labeled, epochs=epochs, classes=classes, scratch=scratch
        )
    return PredictionHistory(images, size, labeled=labeled, epochs=epochs, scratch=scratch)
