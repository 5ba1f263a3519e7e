"""UNet of segmentation-models-pytorch with any of its encoders."""

import logging
from collections.abc import Sequence

from torch import Tensor, nn

from segconf.config.schema import ModelConfig
from segconf.errors import ConfigError
from segconf.models.decoder import fold_upsampling
from segconf.models.encoders import (
    check_encoder,
    find_weights_file,
    hub_out_of_reach,
    load_encoder_weights,
)
from segconf.models.libraries import NoMetaValues, quiet, smp

logger = logging.getLogger(__name__)


def build_unet(config: ModelConfig, *, pretrained: bool = True) -> nn.Module:
    """Network of the configuration: images (B, C, H, W) to logits (B, K, H, W).

    Args:
        config: the model section.
        pretrained: False when trained weights follow, so that no encoder weights are needed.
    """
    check_encoder(config.encoder)
    match config.encoder_weights if pretrained else "none":
        case "none":
            return _unet(config, None)
        case "imagenet":
            return _unet_from_hub(config)
        case file:
            path = find_weights_file(file)
            model = _unet(config, None)
            load_encoder_weights(model.get_submodule("encoder"), path, encoder_name=config.encoder)
            return model


def encode(network: nn.Module, images: Tensor) -> Sequence[Tensor] | None:
    """Feature maps of the encoder, input first; None for a network without encoder and decoder."""
    parts = dict(network.named_children())
    if not {"encoder", "decoder", "segmentation_head"} <= parts.keys():
        return None
    maps: Sequence[Tensor] = parts["encoder"](images)
    return maps


def decode(network: nn.Module, maps: Sequence[Tensor]) -> Tensor:
    """Outputs (B, K', H, W) from the feature maps of the encoder."""
    features = network.get_submodule("decoder")(maps)
    outputs: Tensor = network.get_submodule("segmentation_head")(features)
    return outputs


def _unet(config: ModelConfig, encoder_weights: str | None) -> nn.Module:
    try:
        with quiet(), NoMetaValues():
            model: nn.Module = smp.Unet(
                config.encoder,
                encoder_weights=encoder_weights,
                in_channels=config.channels,
                classes=config.classes,
            )
    except ValueError as error:
        raise ConfigError(
            f"model.encoder = {config.encoder}: cannot be the encoder of a UNet ({error}). "
            "For example: resnet34."
        ) from error
    fold_upsampling(model, config.channels)
    return model


def _unet_from_hub(config: ModelConfig) -> nn.Module:
    logger.info("fetching the ImageNet weights of %s from the model hub", config.encoder)
    try:
        return _unet(config, "imagenet")
    # A hub that is out of reach shows as OSError; the others mean that there are no such weights.
    except (OSError, KeyError, RuntimeError) as error:
        raise hub_out_of_reach(config.encoder, error) from error
