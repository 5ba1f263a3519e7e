"""Classifiers: networks for small pictures and for tables, and any classifier of timm.

A label is a mask of one pixel: images (B, C, H, W) become outputs (B, K, 1, 1). A classifier has
the parts of a UNet under the same names, so that losses, predictors, the out-of-distribution
detector and packaging need not know which of both they have:

- `encoder`: images to feature maps, the input first and the deepest last;
- `decoder`: the deepest map to its mean over the pixels, (B, F, 1, 1), with dropout for MC dropout;
- `segmentation_head`: the last linear layer, as a convolution of 1 x 1.

Written here: PreAct-ResNet (He et al. 2016, "Identity mappings in deep residual networks"),
DenseNet-BC (Huang et al. 2017), ResNet18 (He et al. 2016) with a first layer for 32 x 32 pixels,
and a multilayer perceptron for tables, whose rows are images of one pixel.
"""

import re
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from segconf.config.schema import ModelConfig
from segconf.errors import ConfigError
from segconf.models.decoder import PoolingBlock
from segconf.models.encoders import (
    check_classifier,
    find_weights_file,
    hub_out_of_reach,
    load_encoder_weights,
)
from segconf.models.libraries import quiet, timm
from segconf.models.mlp import MLP_WIDTH, mlp_stages
from segconf.models.unet import decode


class Classifier(nn.Module):
    """Encoder, mean over the pixels, linear layer."""

    def __init__(self, encoder: nn.Module, features: int, outputs: int) -> None:
        """Put a linear layer on the deepest map, which has so many features, of an encoder."""
        super().__init__()
        self.encoder = encoder
        self.decoder = PooledFeatures(features)
        self.segmentation_head = nn.Conv2d(features, outputs, kernel_size=1)

    def forward(self, images: Tensor) -> Tensor:
        """Outputs (B, K, 1, 1) of images (B, C, H, W)."""
        return decode(self, self.encoder(images))


class PooledFeatures(nn.Module):
    """The decoder of a classifier: one block, which takes the mean over the pixels."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([PoolingBlock(features)])

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Features (B, F, 1, 1) from the maps of the encoder."""
        features = maps[-1]  # (B, F, h, w)
        for block in self.blocks:
            features = block(features, 1, 1)  # (B, F, 1, 1)
        return features


def build_classifier(config: ModelConfig, *, pretrained: bool = True) -> nn.Module:
    """Network of the configuration: images (B, C, H, W) to outputs (B, K, 1, 1).

    `model.encoder` is `preact_resnetD` with D = 6n + 2, `densenet_bc_D_G` with D = 6n + 4 layers
    and growth rate G, `resnet18_32`, `mlp` (a table with `model.channels` columns, as images
    (B, columns, 1, 1)), or a classifier of timm.

    Args:
        config: the model section.
        pretrained: False when trained weights follow, so that no encoder weights are needed.

    Raises:
        ConfigError: there is no such network, or it has no ImageNet weights.
        CheckpointError: the weights cannot be had.
    """
    weights = config.encoder_weights if pretrained else "none"
    own = _own_encoder(config)
    if own is None:
        encoder, features = _timm_encoder(config, fetch=weights == "imagenet")
    elif weights == "imagenet":
        raise ConfigError(
            f"model.encoder_weights = imagenet: there are none for {config.encoder}. Set "
            "model.encoder_weights=none to train from scratch, or give a file."
        )
    else:
        encoder, features = own
    if weights not in {"none", "imagenet"}:
        load_encoder_weights(encoder, find_weights_file(weights), encoder_name=config.encoder)
    return Classifier(encoder, features, config.classes)


def _own_encoder(config: ModelConfig) -> tuple[nn.Module, int] | None:
    """The encoder of a network of this module, with its features; None for other names."""
    channels, name = config.channels, config.encoder
    if name == "mlp":
        return StagedEncoder(*mlp_stages(channels)), MLP_WIDTH
    if name == "resnet18_32":
        return _initialised(_resnet18(channels)), 512
    if match := re.fullmatch(r"preact_resnet(\d{1,4})", name):
        blocks = _repetitions(name, int(match[1]), offset=2)
        return _initialised(_preact_resnet(channels, blocks)), 64
    if match := re.fullmatch(r"densenet_bc_(\d{1,4})_(\d{1,3})", name):
        layers = _repetitions(name, int(match[1]), offset=4)
        dense, features = _densenet_bc(channels, layers, max(1, int(match[2])))
        return _initialised(dense), features
    return None


def _repetitions(name: str, depth: int, *, offset: int) -> int:
    """The n of a depth of 6n + offset."""
    repetitions, rest = divmod(depth - offset, 6)
    if rest or repetitions < 1:
        below = 6 * max(1, repetitions) + offset
        raise ConfigError(
            f"model.encoder = {name}: its depth must be 6n + {offset}. Take {below} or {below + 6}."
        )
    return repetitions


class StagedEncoder(nn.Module):
    """Stages one after another, each with a feature map of its own."""

    def __init__(self, *stages: nn.Module) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Feature maps of images (B, C, H, W), which are the first."""
        maps = [images]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps


def _convolution(channels: int, features: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, features, kernel_size=3, stride=stride, padding=1, bias=False)


def _projection(channels: int, features: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, features, kernel_size=1, stride=stride, bias=False)


def _initialised(encoder: nn.Module) -> nn.Module:
    """The initialisation of He et al. (2015) for the convolutions."""
    for module in encoder.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return encoder


class PreActBlock(nn.Module):
    """Two convolutions, each after normalisation and ReLU, added to the input."""

    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), _convolution(channels, features, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(features), _convolution(features, features)
        same = stride == 1 and channels == features
        self.shortcut = None if same else _projection(channels, features, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (B, C, H, W) to (B, F, H / stride, W / stride)."""
        active = relu(self.norm1(inputs))
        residual: Tensor = self.conv2(relu(self.norm2(self.conv1(active))))
        return residual + (inputs if self.shortcut is None else self.shortcut(active))


def _preact_resnet(channels: int, blocks: int) -> nn.Module:
    """Stages of 16, 32, 64 channels at full, half, quarter resolution."""

    def stage(before: int, features: int, stride: int) -> list[nn.Module]:
        rest = [PreActBlock(features, features, 1) for _ in range(blocks - 1)]
        return [PreActBlock(before, features, stride), *rest]

    return StagedEncoder(
        nn.Sequential(_convolution(channels, 16), *stage(16, 16, 1)),  # (B, 16, H, W)
        nn.Sequential(*stage(16, 32, 2)),  # (B, 32, H/2, W/2)
        nn.Sequential(*stage(32, 64, 2), nn.BatchNorm2d(64), nn.ReLU()),  # (B, 64, H/4, W/4)
    )


class BasicBlock(nn.Module):
    """Two convolutions, each before its normalisation, added to the input before the last ReLU."""

    def __init__(self, channels: int, features: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _convolution(channels, features, stride), nn.BatchNorm2d(features)
        self.conv2, self.norm2 = _convolution(features, features), nn.BatchNorm2d(features)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != features:
            self.shortcut = nn.Sequential(
                _projection(channels, features, stride), nn.BatchNorm2d(features)
            )

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (B, C, H, W) to (B, F, H / stride, W / stride)."""
        residual = self.norm2(self.conv2(relu(self.norm1(self.conv1(inputs)))))
        return relu(residual + self.shortcut(inputs))


def _resnet18(channels: int) -> nn.Module:
    """Two blocks at each of four resolutions; no pooling, no stride in the first layer."""

    def stage(before: int, features: int, stride: int) -> list[nn.Module]:
        return [BasicBlock(before, features, stride), BasicBlock(features, features, 1)]

    stem = [_convolution(channels, 64), nn.BatchNorm2d(64), nn.ReLU()]
    return StagedEncoder(
        nn.Sequential(*stem, *stage(64, 64, 1)),  # (B, 64, H, W)
        nn.Sequential(*stage(64, 128, 2)),  # (B, 128, H/2, W/2)
        nn.Sequential(*stage(128, 256, 2)),  # (B, 256, H/4, W/4)
        nn.Sequential(*stage(256, 512, 2)),  # (B, 512, H/8, W/8)
    )


class DenseLayer(nn.Module):
    """A bottleneck of 1 x 1 and a convolution, whose features are appended to the input."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), _projection(channels, 4 * growth)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), _convolution(4 * growth, growth)

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (B, C, H, W) to (B, C + growth, H, W)."""
        narrow = self.conv1(relu(self.norm1(inputs)))  # (B, 4 growth, H, W)
        return torch.cat([inputs, self.conv2(relu(self.norm2(narrow)))], dim=1)


def _densenet_bc(channels: int, layers: int, growth: int) -> tuple[nn.Module, int]:
    """Three dense blocks of so many layers; between them half of the channels and pixels go."""
    width = 2 * growth
    stages = []
    for number in range(3):
        if number == 0:
            parts: list[nn.Module] = [_convolution(channels, width)]
        else:
            halved = _projection(width, width // 2)
            parts = [nn.BatchNorm2d(width), nn.ReLU(), halved, nn.AvgPool2d(2)]
            width //= 2
        parts += [DenseLayer(width + layer * growth, growth) for layer in range(layers)]
        width += layers * growth
        if number == 2:  # noqa: PLR2004 - the last
            parts += [nn.BatchNorm2d(width), nn.ReLU()]
        stages.append(nn.Sequential(*parts))  # (B, width, H / 2^number, W / 2^number)
    return StagedEncoder(*stages), width


class TimmEncoder(nn.Module):
    """A classifier of timm without its last layer; the deepest map is what that layer is given."""

    def __init__(self, model: nn.Module, name: str) -> None:
        """Take a model that was built for 0 classes."""
        super().__init__()
        self.model = model
        self.name = name

    def forward(self, images: Tensor) -> list[Tensor]:
        """Images (B, C, H, W), the maps of the stages, and features (B, F, 1, 1)."""
        model = self.model
        try:
            deepest, stages = model.forward_intermediates(images)  # type: ignore[operator]
        except AssertionError as error:  # how timm refuses a size
            height, width = images.shape[2:]
            raise ConfigError(
                f"data.size = {height}, {width}: {self.name} cannot take it ({error})."
            ) from error
        features: Tensor = model.forward_head(deepest, pre_logits=True)  # type: ignore[operator]
        return [images, *stages, features[:, :, None, None]]


def _timm_encoder(config: ModelConfig, *, fetch: bool) -> tuple[nn.Module, int]:
    name = check_classifier(config.encoder)
    try:
        with quiet():
            model = timm.create_model(
                name, pretrained=fetch, num_classes=0, in_chans=config.channels
            )
    except (OSError, KeyError, RuntimeError) as error:  # as for a UNet
        if not fetch:
            raise
        raise hub_out_of_reach(config.encoder, error) from error
    features = getattr(model, "head_hidden_size", None) or model.num_features
    return TimmEncoder(model, name), cast(int, features)
