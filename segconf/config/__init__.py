"""The experiment file, typed and checked."""

from segconf.config.loading import load_config, save_config
from segconf.config.protocol import METHODS, Protocol, load_protocol, paper_protocol
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
    "METHODS",
    "AugmentationConfig",
    "DataConfig",
    "ExperimentConfig",
    "InferenceConfig",
    "LossConfig",
    "ModelConfig",
    "Protocol",
    "TrainingConfig",
    "load_config",
    "load_protocol",
    "paper_protocol",
    "save_config",
]
