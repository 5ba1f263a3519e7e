"""The network named in the configuration."""

from segconf.models.network import build_model
from segconf.models.normalization import encoder_normalization

__all__ = ["build_model", "encoder_normalization"]
