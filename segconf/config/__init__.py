"""The experiment file, typed and checked."""

from segconf.config.loading import load_config, save_config
from segconf.config.schema import (
    AugmentationConfig,
    DataConfig,
    ExperimentConfig,
    InferenceConfig,
    LossConfig,
    ModelConfig,
    TrainingConfig,
)

__all__ = [
    "AugmentationConfig",
    "DataConfig",
    "ExperimentConfig",
    "InferenceConfig",
    "LossConfig",
    "ModelConfig",
    "TrainingConfig",
    "load_config",
    "save_config",
]
