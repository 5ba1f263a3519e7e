"""UNet of segmentation-models-pytorch with any of its encoders."""

import difflib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import segmentation_models_pytorch as smp
import timm
from torch import nn

from segconf.config.schema import ModelConfig
from segconf.errors import CheckpointError, ConfigError
from segconf.models.dropout import add_decoder_dropout
from segconf.models.encoder_weights import find_weights_file, load_encoder_weights
from segconf.models.folding import fold_upsampling

SHOWN_ENCODERS = 5


logger = logging.getLogger(__name__)


def build_model(
    config: ModelConfig, *, method: str = "softmax", pretrained: bool = True
) -> nn.Module:
    """Network of the configuration: images (B, C, H, W) to logits (B, K, H, W).

    With the method `aleatoric` the K logits are followed by their K log-variances, (B, 2K, H, W).

    Args:
        config: the model section.
        method: what the network is trained for; some need dropout, or more outputs.
        pretrained: False when trained weights follow, so that no encoder weights are needed.
    """
    match method:
        case "mcdropout":
            network = _build_unet(config, pretrained=pretrained)
            add_decoder_dropout(network, config.dropout)
        case "aleatoric":
            doubled = config.model_copy(update={"classes": 2 * config.classes})
            network = _build_unet(doubled, pretrained=pretrained)
            add_decoder_dropout(network, config.dropout)
        case _:
            network = _build_unet(config, pretrained=pretrained)
    return network


def _build_unet(config: ModelConfig, *, pretrained: bool) -> nn.Module:
    _check_encoder(config.encoder)
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


def _unet(config: ModelConfig, encoder_weights: str | None) -> nn.Module:
    try:
        with _quiet():
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
    fold_upsampling(model)
    return model


def _unet_from_hub(config: ModelConfig) -> nn.Module:
    logger.info("fetching the ImageNet weights of %s from the model hub", config.encoder)
    try:
        return _unet(config, "imagenet")
    # A hub that is out of reach shows as OSError; the others mean that there are no such weights.
    except (OSError, KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"model.encoder_weights = imagenet: the ImageNet weights of {config.encoder} could not "
            f"be fetched from the model hub ({type(error).__name__}). Two ways out:\n"
            "  --set model.encoder_weights=FILE   a local file (.pth or .safetensors)\n"
            "  --set model.encoder_weights=none   train from scratch, with lower quality"
        ) from error


def _check_encoder(name: str) -> None:
    known = [*smp.encoders.encoders, *(f"tu-{model}" for model in timm.list_models())]
    if name.partition(".")[0] in known:
        return
    nearest = difflib.get_close_matches(name, known, SHOWN_ENCODERS, 0.5)
    hint = f"Did you mean {', '.join(nearest)}?" if nearest else "For example: resnet34."
    raise ConfigError(f"model.encoder = {name}: unknown encoder. {hint}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' remarks about names and retries: our errors say what matters."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", UserWarning)
            yield
    finally:
        hub.setLevel(level)
