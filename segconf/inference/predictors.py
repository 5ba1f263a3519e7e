"""Predictors: the passes of the network that the confidence of a method is made of.

A predictor of several passes leaves part of the network to chance, or exchanges its weights. Chance
is the same for every image: the channels that a pass drops, and the noise that it adds, are drawn
once. What is predicted for an image is then reproducible, whatever other images are in its batch.
"""

import copy
import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from segconf.calibration.calibrators import AS_IT_IS, Calibrator
from segconf.checkpoints.weight_files import load_into
from segconf.losses.noisy_logits import mean_and_log_variance, noisy_logits, spread_noise
from segconf.models.decoder import thinned
from segconf.models.unet import decode, encode

_SEED = 0


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over a batch.

    Attributes:
        logits: (B, K, h, w).
        maps: feature maps (B, C, h', w') of the encoder, where the pass computed them with the
            weights of the checkpoint; else None.
    """

    logits: Tensor
    maps: Sequence[Tensor] | None = None


class Predictor(Protocol):
    """How often, and how, the network sees a batch."""

    count: int

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """The passes over normalised images (B, C, h, w), one after another."""


def predict_batch(
    predictor: Predictor, images: Tensor, *, calibrator: Calibrator = AS_IT_IS
) -> Pass:
    """Calibrated logits of normalised images (B, C, h, w), whose softmax is the probability.

    Everything downstream knows these logits only: those of a single pass, or the logarithm of the
    mean probability of several. The feature maps are those of the first pass.
    """
    with torch.inference_mode():
        passes = predictor(images)
        first = next(passes, None)
        if first is None:
            raise ValueError("a predictor needs at least one pass")
        if predictor.count == 1:
            return Pass(calibrator.apply(first.logits.float()), first.maps)
        total = first.logits.float().log_softmax(dim=1)
        for one in passes:
            total = total.logaddexp(one.logits.float().log_softmax(dim=1))
        return Pass(calibrator.apply(total - math.log(predictor.count)), first.maps)


class SinglePass:
    """One deterministic pass."""

    count = 1

    def __init__(self, network: nn.Module) -> None:
        """Use a network in evaluation mode."""
        self._network = network

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """The one pass."""
        maps = encode(self._network, images)
        yield Pass(self._network(images) if maps is None else decode(self._network, maps), maps)


class DropoutPredictor:
    """MC dropout: one pass of the encoder, and one of the decoder for each choice of channels."""

    def __init__(self, network: nn.Module, count: int) -> None:
        """Use a network with dropout in its decoder, in evaluation mode."""
        self.count = count
        generator = torch.Generator().manual_seed(_SEED)
        decoder = network.get_submodule("decoder")
        self.encoder = network.get_submodule("encoder")
        device = next(network.parameters()).device
        self.decoders = [thinned(decoder, generator).to(device) for _ in range(count)]
        self.head = network.get_submodule("segmentation_head")

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """Outputs of the passes; only the decoder and the head are repeated."""
        maps = self.encoder(images)
        for decoder in self.decoders:
            yield Pass(self.head(decoder(maps)), maps)


class NoisyLogits:
    """The passes of a network with log-variances, each with a draw of its logits.

    A pixel's mean over the passes does not depend on whether its neighbours have the same noise,
    so all have: a map without grain, from a single number per class and pass.
    """

    def __init__(self, predictor: Predictor, classes: int) -> None:
        """Add noise to passes whose outputs (B, 2K, h, w) are means and log-variances."""
        self.count = predictor.count
        generator = torch.Generator().manual_seed(_SEED)
        self._predictor = predictor
        self._noise = spread_noise(predictor.count, classes, generator)  # (S, K)

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """Logits (B, K, h, w) of the passes."""
        noise = self._noise.to(images.device)[:, :, None, None]  # (S, K, 1, 1)
        for one, draw in zip(self._predictor(images), noise, strict=True):
            mean, log_variance = mean_and_log_variance(one.logits)
            yield Pass(noisy_logits(mean, log_variance, draw), one.maps)


class WeightsPredictor:
    """One pass for each weights file, by one network whose weights are exchanged.

    The files are mapped, not kept in memory: whatever their number, they cost one more set of
    weights. `benchmarks/snapshots.py` compares this with the alternatives.
    """

    def __init__(self, network: nn.Module, files: Sequence[Path]) -> None:
        """Use a copy of a network in evaluation mode; the network itself is left as it is."""
        self.count = len(files)
        self._network = copy.deepcopy(network)
        self._files = tuple(files)
        self._lock = threading.Lock()  # the weights of a pass are for one thread at a time

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """Logits of every set of weights."""
        for file in self._files:
            with self._lock:
                load_into(self._network, file)
                logits = self._network(images)
            yield Pass(logits)
