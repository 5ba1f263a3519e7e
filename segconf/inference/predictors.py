"""Where the method of a run decides what its confidence is: one pass of the network, or several."""

import copy
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from segconf.checkpoints.snapshots import kept_snapshots, load_into, snapshot_epochs
from segconf.checkpoints.weights import Checkpoint
from segconf.errors import CheckpointError
from segconf.losses.aleatoric import mean_and_log_variance, noisy_logits, spread_noise
from segconf.models.dropout import thinned
from segconf.runs.run_folder import RunFolder


class Passes(Protocol):
    """How often, and how, the network looks at a batch."""

    count: int

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Logits (B, K, h, w) of every pass over normalised images (B, C, h, w)."""


class SinglePass:
    """One deterministic pass: softmax and the methods that train it to rank."""

    count = 1

    def __init__(self, network: nn.Module) -> None:
        """Use a network in evaluation mode."""
        self._network = network

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Logits of the one pass."""
        yield self._network(images)


def batch_logits(passes: Passes, images: Tensor, *, temperature: float) -> Tensor:
    """Logits (B, K, h, w) of normalised images (B, C, h, w) whose softmax is the probability.

    Everything downstream knows these logits only: those of a single pass, or the logarithm of the
    mean probability of several.
    """
    with torch.inference_mode():
        if passes.count == 1:
            (logits,) = passes(images)
            return logits.float() / temperature
        total: Tensor | None = None
        for logits in passes(images):
            log_probabilities = logits.float().log_softmax(dim=1)
            total = log_probabilities if total is None else total.logaddexp(log_probabilities)
        if total is None:
            raise ValueError("a method needs at least one pass")
        return (total - math.log(passes.count)) / temperature


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


class WeightPasses:
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

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Logits of every set of weights."""
        for file in self._files:
            with self._lock:
                load_into(self._network, file)
                logits = self._network(images)
            yield logits


logger = logging.getLogger(__name__)


def passes_of(checkpoint: Checkpoint) -> Passes:
    """How the network of a run looks at a batch."""
    config, network = checkpoint.config, checkpoint.model
    match config.training.method:
        case "softmax" | "crl" | "consistency":
            return SinglePass(network)
        case "aes" | "ensemble":
            return WeightPasses(network, weight_files(checkpoint))
        case "mcdropout":
            return DropoutPasses(network, config.inference.passes)
        case "aleatoric":
            passes = DropoutPasses(network, config.inference.passes)
            return NoisyPasses(passes, config.model.classes)


def weight_files(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Files beside the checkpoint that its method averages over."""
    match checkpoint.config.training.method:
        case "aes":
            return _snapshots(checkpoint)
        case "ensemble":
            return _members(checkpoint)
        case _:
            return ()


def _snapshots(checkpoint: Checkpoint) -> tuple[Path, ...]:
    run = checkpoint.path.parent
    planned = snapshot_epochs(checkpoint.config.training)
    kept = kept_snapshots(run)
    if not kept or tuple(kept) != planned[: len(kept)]:
        gone = next((epoch for epoch in planned if epoch not in kept), planned[0])
        raise CheckpointError(
            f"{run}: the method aes averages snapshots, and that of epoch {gone} is not in "
            "snapshots/. Use the complete run folder, or train until the first snapshot."
        )
    if len(kept) < len(planned):
        logger.warning(
            "%s: the training has not finished, averaging %d of %d snapshots",
            *(run, len(kept), len(planned)),
        )
    return tuple(kept.values())


def _members(checkpoint: Checkpoint) -> tuple[Path, ...]:
    run = RunFolder(checkpoint.path.parent)
    members = run.members(checkpoint.config.training.members)
    files = tuple(member.best_file for member in members)
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise CheckpointError(
            f"{missing}: a member of the ensemble is missing. Use the complete run folder."
        )
    return files
