"""The network of a run in the form that is exported: one module, its weights folded."""

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, conv_transpose2d

from segconf.calibration.calibrators import Calibrator
from segconf.checkpoints.weight_files import load_into
from segconf.errors import ConfigError
from segconf.inference.torch_model import TorchModel
from segconf.methods.method import method_of
from segconf.models.decoder import FoldedBlock, decoder_blocks
from segconf.models.unet import decode, encode
from segconf.ood.features import pooled_features


class DeployedBlock(nn.Module):
    """A folded block of the decoder with its normalisation in the kernels.

    ``norm(T x + S s)`` becomes ``T' x + S' s + b``: a transposed convolution of the features and a
    convolution of the encoder's, both with kernels that are computed once.
    """

    kernel: Tensor
    skip_kernel: Tensor
    bias: Tensor

    def __init__(self, block: FoldedBlock, channels: int) -> None:
        """Take over a block whose features have that many channels."""
        super().__init__()
        convolution, norm, self.activation = block.conv1.children()
        if not (isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)):
            raise TypeError("expected a convolution and its batch normalisation")
        mean, variance = norm.running_mean, norm.running_var
        if mean is None or variance is None:
            raise TypeError("expected a batch normalisation with statistics")
        scale = norm.weight / torch.sqrt(variance + norm.eps)  # (O,)
        weight = convolution.weight * scale[:, None, None, None]  # (O, C + S, 3, 3)
        wide = weight[:, :channels].flatten(2) @ block.spread
        kernel = wide.reshape(*wide.shape[:2], 4, 4).transpose(0, 1)  # (C, O, 4, 4)
        self.register_buffer("kernel", kernel.detach().contiguous())
        self.register_buffer("skip_kernel", weight[:, channels:].detach().contiguous())
        self.register_buffer("bias", (norm.bias - mean * scale).detach())
        self.conv2 = block.conv2

    def forward(
        self,
        feature_map: Tensor,
        target_height: int,  # noqa: ARG002 - twice that of the features
        target_width: int,  # noqa: ARG002
        skip_connection: Tensor | None = None,
    ) -> Tensor:
        """Features (B, C, h, w) and those of the encoder (B, S, H, W) to features (B, O, H, W)."""
        if skip_connection is None or not self.skip_kernel.shape[1]:
            features = conv_transpose2d(feature_map, self.kernel, self.bias, stride=2, padding=1)
        else:
            features = conv_transpose2d(feature_map, self.kernel, stride=2, padding=1)
            features = features + conv2d(skip_connection, self.skip_kernel, self.bias, padding=1)
        finished: Tensor = self.conv2(self.activation(features))
        return finished


class DeployedNetwork(nn.Module):
    """Networks whose mean probability is the prediction, with their calibrator.

    Normalised images (B, C, h, w) become logits (B, K, h, w) and, where they are asked for, the
    features (B, F) of the first encoder.
    """

    def __init__(
        self, networks: Sequence[nn.Module], *, calibrator: Calibrator, features: bool
    ) -> None:
        """Take networks in evaluation mode, which are not changed."""
        super().__init__()
        self.networks = nn.ModuleList(deployed(network) for network in networks)
        self.calibrator = calibrator
        self.features = features

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The logits, and the features."""
        maps = [encode(network, images) for network in self.networks]
        outputs = [
            network(images) if own is None else decode(network, own)
            for network, own in zip(self.networks, maps, strict=True)
        ]
        logits = outputs[0]
        if len(outputs) > 1:
            each = torch.stack([one.log_softmax(dim=1) for one in outputs])  # (M, B, K, h, w)
            logits = each.logsumexp(dim=0) - math.log(len(outputs))
        logits = self.calibrator.apply(logits)
        if not self.features or maps[0] is None:
            return (logits,)
        return logits, pooled_features(maps[0])


class DeployedEncoder(nn.Module):
    """The encoder alone: normalised images (B, C, h, w) to features (B, F)."""

    def __init__(self, encoder: nn.Module) -> None:
        """Take an encoder in evaluation mode."""
        super().__init__()
        self.encoder = encoder

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """The features."""
        return (pooled_features(self.encoder(images)),)


def deployed(network: nn.Module) -> nn.Module:
    """A copy of a network in which the folded blocks have their final kernels."""
    twin = copy.deepcopy(network)
    if "decoder" not in dict(twin.named_children()):
        return twin
    blocks = decoder_blocks(twin.get_submodule("decoder"))
    for number in range(1, len(blocks)):
        block = blocks[number]
        if not isinstance(block, FoldedBlock):
            continue
        before = [part for part in blocks[number - 1].modules() if isinstance(part, nn.Conv2d)]
        blocks[number] = DeployedBlock(block, before[-1].out_channels)
    return twin


def networks_of(model: TorchModel) -> list[nn.Module]:
    """The networks whose mean probability a model predicts.

    Raises:
        ConfigError: the method predicts in another way.
    """
    config, network = model.config, model.checkpoint.model
    method = method_of(config)
    if not method.exportable:
        raise ConfigError(
            f"{model.file}: the method {method.name} takes {model.passes} passes per image, which "
            "a packaged network cannot repeat. Package a run of another method, such as "
            "consistency or ensemble."
        )
    members = []
    for file in method.weight_files(model.file, config):
        member = copy.deepcopy(network)
        load_into(member, file)
        members.append(member)
    return members or [network]
