"""Decoder blocks: folded upsampling of a UNet, pooling of a classifier, and spatial dropout.

A block of the UNet of segmentation-models-pytorch doubles its input, nearest pixel by nearest
pixel, appends the encoder's features and convolves both with a kernel of 3 x 3. The doubled map
holds every value four times, so that the nine products of an output pixel meet only four values.
Summing the weights that meet the same one first leaves a transposed convolution of stride 2 with a
kernel of 4 x 4: the same sum with four products instead of nine, without the doubled and the joined
map. benchmarks/decoder.py measures it. For dropout, every block drops whole channels of its output,
as `decoder.blocks.N.dropout`.
"""

import copy
import logging
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, conv2d, conv_transpose2d, interpolate

SPREAD = torch.tensor([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 0]], dtype=torch.float32)
"""Along one axis: of which of the three weights each of the four transposed ones is the sum."""


DEEPEST = 1
"""Blocks left as they are: with few pixels and many channels, larger kernels cost more."""


PROBE_SIDE = 64


TOLERANCE = 1e-4


logger = logging.getLogger(__name__)


class FoldedBlock(nn.Module):
    """A block of the decoder, with the parameters and the names of the one it stands for."""

    spread: Tensor

    def __init__(self, block: nn.Module) -> None:
        """Take over the two convolutions of a block, each with its normalization."""
        super().__init__()
        self.conv1 = block.get_submodule("conv1")
        self.conv2 = block.get_submodule("conv2")
        self.register_buffer("spread", torch.kron(SPREAD, SPREAD).T.contiguous(), persistent=False)

    def forward(
        self,
        feature_map: Tensor,
        target_height: int,
        target_width: int,
        skip_connection: Tensor | None = None,
    ) -> Tensor:
        """Features (B, C, h, w) and those of the encoder (B, S, H, W) to features (B, O, H, W)."""
        convolution, *rest = self.conv1.children()
        weight = cast(nn.Conv2d, convolution).weight  # a plain tensor in a functional call
        channels = feature_map.shape[1]
        if (target_height, target_width) == tuple(2 * side for side in feature_map.shape[2:]):
            features = self._doubled(feature_map, weight[:, :channels])
        else:
            larger = interpolate(feature_map, size=(target_height, target_width), mode="nearest")
            features = conv2d(larger, weight[:, :channels], padding=1)
        # Some encoders have nothing to add at half of the resolution.
        if skip_connection is not None and skip_connection.shape[1]:
            features = features + conv2d(skip_connection, weight[:, channels:], padding=1)
        for layer in rest:
            features = layer(features)
        finished: Tensor = self.conv2(features)
        return finished

    def _doubled(self, features: Tensor, weight: Tensor) -> Tensor:
        """The 3 x 3 convolution of the doubled features: (B, C, h, w) to (B, O, 2h, 2w)."""
        kernel = (weight.flatten(2) @ self.spread).reshape(*weight.shape[:2], 4, 4)
        return conv_transpose2d(features, kernel.transpose(0, 1), stride=2, padding=1)


def fold_upsampling(network: nn.Module, channels: int) -> bool:
    """Let the decoder of a UNet convolve its upsampled maps without writing them.

    The folded network is compared with the original on a small random input. Where they differ,
    or where the decoder is not built as expected, the original blocks stay and the log says so.

    Args:
        network: a UNet of segmentation-models-pytorch.
        channels: of its input.

    Returns:
        Whether the decoder is folded.
    """
    expected = _probe(network, channels)
    originals: list[nn.Module] = []
    try:
        blocks = decoder_blocks(network.get_submodule("decoder"))
        originals = list(blocks)
        for number in range(DEEPEST, len(blocks)):
            blocks[number] = FoldedBlock(blocks[number])
        gap = float((_probe(network, channels) - expected).abs().max())
    except (AttributeError, TypeError, RuntimeError, ValueError) as error:
        problem = str(error) or type(error).__name__
    else:
        if gap <= TOLERANCE * max(1.0, float(expected.abs().max())):
            return True
        problem = f"outputs differ by {gap:g}"
    logger.warning("the decoder is used as it is, which is slower: %s", problem)
    for number, block in enumerate(originals):
        decoder_blocks(network.get_submodule("decoder"))[number] = block
    return False


@torch.no_grad()
def _probe(network: nn.Module, channels: int) -> Tensor:
    """Outputs for a small random input, in evaluation mode; nothing else is touched."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(1, channels, PROBE_SIDE, PROBE_SIDE, generator=generator)
    was_training = network.training
    network.eval()
    try:
        outputs: Tensor = network(images)
    finally:
        network.train(was_training)
    return outputs


def decoder_blocks(decoder: nn.Module) -> nn.ModuleList:
    """The blocks of a decoder, deepest first."""
    blocks = decoder.get_submodule("blocks")
    if not isinstance(blocks, nn.ModuleList):
        raise TypeError("expected the decoder of a UNet, with a list of blocks")
    return blocks


class PoolingBlock(nn.Module):
    """The block of a decoder that has no resolution to win back: the mean over areas."""

    def __init__(self, channels: int) -> None:
        """Pool features of so many channels."""
        super().__init__()
        self.channels = channels

    def forward(
        self,
        feature_map: Tensor,
        target_height: int,
        target_width: int,
        skip_connection: Tensor | None = None,  # noqa: ARG002 - as all blocks are called
    ) -> Tensor:
        """Features (B, C, h, w) to their means (B, C, target height, target width)."""
        return adaptive_avg_pool2d(feature_map, (target_height, target_width))


class DropoutBlock(nn.Module):
    """A block of the decoder whose output loses random channels during training."""

    def __init__(self, block: nn.Module, rate: float) -> None:
        """Take over a block; `rate` is the probability that a channel is dropped."""
        super().__init__()
        self.block = block
        self.dropout: nn.Module = nn.Dropout2d(rate)
        self.rate = rate

    def forward(
        self,
        feature_map: Tensor,
        target_height: int,
        target_width: int,
        skip_connection: Tensor | None = None,
    ) -> Tensor:
        """The block as the decoder calls it, then dropout."""
        features: Tensor = self.block(
            feature_map, target_height, target_width, skip_connection=skip_connection
        )
        dropped: Tensor = self.dropout(features)
        return dropped


class FixedDropout(nn.Module):
    """Drops the same channels every time and scales the others, as dropout does in training."""

    factors: Tensor

    def __init__(self, channels: int, rate: float, generator: torch.Generator) -> None:
        """Choose the channels: each is dropped with probability `rate`."""
        super().__init__()
        kept = torch.rand(channels, generator=generator) >= rate
        self.register_buffer("factors", (kept / (1 - rate)).reshape(-1, 1, 1))  # (C, 1, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, H, W) without the dropped channels."""
        return features * self.factors


def add_decoder_dropout(network: nn.Module, rate: float) -> None:
    """Let every block of the network's decoder drop channels with probability `rate`."""
    blocks = decoder_blocks(network.get_submodule("decoder"))
    for number, block in enumerate(blocks):
        blocks[number] = DropoutBlock(block, rate)


def thinned(decoder: nn.Module, generator: torch.Generator) -> nn.Module:
    """A decoder with the same weights that has lost random channels for good.

    The weights are shared, not copied, so that many of them need no memory. It has no state: it
    can be used from several threads, and drops the same channels of every image. What it drops is
    kept on the CPU until it is moved.
    """
    weights = {id(tensor): tensor for tensor in (*decoder.parameters(), *decoder.buffers())}
    twin = copy.deepcopy(decoder, weights)
    for block in decoder_blocks(twin):
        if not isinstance(block, DropoutBlock):
            raise TypeError("this decoder has no dropout")
        block.dropout = FixedDropout(_channels(block.block), block.rate, generator)
    return twin


def _channels(block: nn.Module) -> int:
    """Channels of what a block returns."""
    if isinstance(block, PoolingBlock):
        return block.channels
    convolutions = [part for part in block.modules() if isinstance(part, nn.Conv2d)]
    return convolutions[-1].out_channels
