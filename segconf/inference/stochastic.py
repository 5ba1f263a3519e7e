"""Methods that look at an image several times, with a part of the network left to chance.

Chance is the same for every image: the channels that a pass drops, and the noise that it adds, are
drawn once. What is predicted for an image is then reproducible, whatever other images are in its
batch, and the pixels of a map differ because the image does, not because of their draws.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from segconf.aleatoric import mean_and_log_variance, noisy_logits, spread_noise
from segconf.inference.passes import Passes
from segconf.models.dropout import thinned

_SEED = 0


class DropoutPasses:
    """MC dropout: one pass of the encoder, and one of the decoder for each choice of channels."""

    def __init__(self, network: nn.Module, count: int) -> None:
        """Use a UNet with dropout in its decoder, in evaluation mode."""
        self.count = count
        generator = torch.Generator().manual_seed(_SEED)
        decoder = network.get_submodule("decoder")
        self.encoder = network.get_submodule("encoder")
        self.decoders = [thinned(decoder, generator) for _ in range(count)]
        self.head = network.get_submodule("segmentation_head")

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Outputs of the passes; only the decoder and the head are repeated."""
        features = self.encoder(images)
        for decoder in self.decoders:
            yield self.head(decoder(features))


class NoisyPasses:
    """The passes of a network with log-variances, each with a draw of its logits.

    A pixel's mean over the passes does not depend on whether its neighbours have the same noise,
    so all have: a map without grain, from a single number per class and pass.
    """

    def __init__(self, passes: Passes, classes: int) -> None:
        """Add noise to passes whose outputs (B, 2K, h, w) are means and log-variances."""
        self.count = passes.count
        generator = torch.Generator().manual_seed(_SEED)
        self._passes = passes
        self._noise = spread_noise(passes.count, classes, generator)  # (S, K)

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Logits (B, K, h, w) of the passes."""
        noise = self._noise.to(images.device)[:, :, None, None]  # (S, K, 1, 1)
        for outputs, draw in zip(self._passes(images), noise, strict=True):
            mean, log_variance = mean_and_log_variance(outputs)
            yield noisy_logits(mean, log_variance, draw)
