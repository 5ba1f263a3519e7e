"""Spatial dropout in the decoder of a UNet, and decoders that have lost the same channels for good.

The UNet of segmentation-models-pytorch has no dropout. Here every block of its decoder drops whole
channels of its output, as `decoder.blocks.N.dropout`.
"""

import copy

import torch
from torch import Tensor, nn

from segconf.models.folding import decoder_blocks


class DropoutBlock(nn.Module):
    """A block of the decoder whose output loses random channels during training."""

    def __init__(self, block: nn.Module, share: float) -> None:
        """Take over a block; `share` is the probability that a channel is dropped."""
        super().__init__()
        self.block = block
        self.dropout: nn.Module = nn.Dropout2d(share)
        self.share = share

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

    def __init__(self, channels: int, share: float, generator: torch.Generator) -> None:
        """Choose the channels: each is dropped with probability `share`."""
        super().__init__()
        kept = torch.rand(channels, generator=generator) >= share
        self.register_buffer("factors", (kept / (1 - share)).reshape(-1, 1, 1))  # (C, 1, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, C, H, W) without the dropped channels."""
        return features * self.factors


def add_decoder_dropout(network: nn.Module, share: float) -> None:
    """Let every block of the network's decoder drop channels with probability `share`."""
    blocks = decoder_blocks(network.get_submodule("decoder"))
    for number, block in enumerate(blocks):
        blocks[number] = DropoutBlock(block, share)


def thinned(decoder: nn.Module, generator: torch.Generator) -> nn.Module:
    """A decoder with the same weights that has lost random channels for good.

    The weights are shared, not copied, so that many of them need no memory. It has no state: it
    can be used from several threads, and drops the same channels of every image.
    """
    weights = {id(tensor): tensor for tensor in (*decoder.parameters(), *decoder.buffers())}
    twin = copy.deepcopy(decoder, weights)
    for block in decoder_blocks(twin):
        if not isinstance(block, DropoutBlock):
            raise TypeError("this decoder has no dropout")
        convolutions = [part for part in block.modules() if isinstance(part, nn.Conv2d)]
        last = convolutions[-1]
        block.dropout = FixedDropout(last.out_channels, block.share, generator).to(
            last.weight.device
        )
    return twin
