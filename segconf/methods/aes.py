"""Average of early-stopping snapshots (AES, Geifman et al. 2019)."""

import logging
from pathlib import Path

from segconf.checkpoints.weight_files import Checkpoint, kept_snapshots
from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError, ConfigError
from segconf.inference.predictors import Predictor, WeightsPredictor
from segconf.methods.method import Method, register

logger = logging.getLogger(__name__)


@register
class SnapshotAverage(Method):
    """Average of 30 snapshots taken along the training."""

    name = "aes"
    exportable = False
    default_snapshots = 30

    def check(self, config: ExperimentConfig) -> None:
        """Refuse a run without snapshots, and one that may end before its last snapshot."""
        if not self.snapshot_epochs(config.training):
            raise ConfigError(
                f"training.snapshots = {config.training.snapshots}: the method aes averages "
                "snapshots, so it needs at least one. Keep some, and let training.snapshot_start "
                "leave room for them."
            )

        if config.training.patience is not None:
            raise ConfigError(
                f"training.patience = {config.training.patience}: the method aes spreads its "
                "snapshots over all epochs. Leave out the patience, and choose training.epochs."
            )

    def passes(self, config: ExperimentConfig) -> int:
        """One pass per snapshot."""
        return len(self.snapshot_epochs(config.training))

    def predictor(self, checkpoint: Checkpoint) -> Predictor:
        """One pass with the weights of every snapshot."""
        return WeightsPredictor(
            checkpoint.model, self.weight_files(checkpoint.path, checkpoint.config)
        )

    def weight_files(self, file: Path, config: ExperimentConfig) -> tuple[Path, ...]:
        """The snapshots beside the weights; those of an unfinished training as far as it got."""
        run = file.parent
        planned = self.snapshot_epochs(config.training)
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
