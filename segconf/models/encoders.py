"""Encoders by name: which ones exist, and the pixel statistics they were trained with."""

import difflib

import segmentation_models_pytorch as smp
import timm
from timm.models import get_pretrained_cfg

from segconf.errors import ConfigError

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


HALF_ENCODERS = ("inceptionv4", "inceptionresnetv2", "xception")


RGB = 3
SHOWN_ENCODERS = 5


def encoder_normalization(
    encoder: str, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, for pixels in [0, 1].

    The table of timm, which segmentation-models-pytorch reads for its `tu-` encoders, is at hand
    without a network: the same encoder is fed the same numbers everywhere. Encoders that the
    table does not know were trained with the ImageNet statistics, but for three. An input that is
    not RGB gets the average over the channels.
    """
    mean, std = _rgb_normalization(encoder.removeprefix("tu-").removeprefix("timm-"))
    if channels != RGB:
        return (sum(mean) / RGB,) * channels, (sum(std) / RGB,) * channels
    return mean, std


def _rgb_normalization(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if name in HALF_ENCODERS:
        return HALF
    pretrained = get_pretrained_cfg(name)
    if pretrained is not None and pretrained.mean and pretrained.std:
        return tuple(pretrained.mean), tuple(pretrained.std)
    return IMAGENET


def check_encoder(name: str) -> None:
    """Refuse a name that neither segmentation-models-pytorch nor timm knows."""
    known = [*smp.encoders.encoders, *(f"tu-{model}" for model in timm.list_models())]
    if name.partition(".")[0] in known:
        return
    nearest = difflib.get_close_matches(name, known, SHOWN_ENCODERS, 0.5)
    hint = f"Did you mean {', '.join(nearest)}?" if nearest else "For example: resnet34."
    raise ConfigError(f"model.encoder = {name}: unknown encoder. {hint}")
