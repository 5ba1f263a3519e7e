"""From the method of a run to the passes of the network that its confidence is made of."""

import logging
from pathlib import Path

from segconf.checkpoints import Checkpoint
from segconf.errors import CheckpointError
from segconf.inference.passes import Passes, SinglePass
from segconf.inference.stochastic import DropoutPasses, NoisyPasses
from segconf.inference.swapping import WeightPasses
from segconf.runs import RunFolder
from segconf.snapshots import kept_snapshots, snapshot_epochs

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
