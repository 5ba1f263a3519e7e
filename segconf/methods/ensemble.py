"""Deep ensemble (Lakshminarayanan et al. 2017): networks that differ in their seed.

Every member is a run of its own in `members/`. What belongs to the ensemble as a whole (its
configuration, and its calibration) is beside and in `best.safetensors`, which holds the weights of
the first member and appears when all have finished.
"""

from pathlib import Path

from segconf.checkpoints.weight_files import Checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError
from segconf.inference.predictors import Predictor, WeightsPredictor
from segconf.methods.method import Method, register
from segconf.runs.run_folder import RunFolder


@register
class DeepEnsemble(Method):
    """Average of 5 softmax networks with different seeds."""

    name = "ensemble"

    def member_configs(self, config: ExperimentConfig) -> tuple[ExperimentConfig, ...]:
        """Softmax runs with a seed of their own each, and the images in common."""
        training, data = config.training, config.data
        split_seed = training.seed if data.split_seed is None else data.split_seed
        # Out-of-distribution images are detected by the ensemble as a whole, not by its members.
        own = {"method": "softmax", "ood_detector": False}
        return tuple(
            config.model_copy(
                update={
                    "training": training.model_copy(update={**own, "seed": training.seed + number}),
                    "data": data.model_copy(update={"split_seed": split_seed}),
                }
            )
            for number in range(training.members)
        )

    def passes(self, config: ExperimentConfig) -> int:
        """One pass per member."""
        return config.training.members

    def predictor(self, checkpoint: Checkpoint) -> Predictor:
        """One pass with the weights of every member."""
        return WeightsPredictor(
            checkpoint.model, self.weight_files(checkpoint.path, checkpoint.config)
        )

    def weight_files(self, file: Path, config: ExperimentConfig) -> tuple[Path, ...]:
        """The weights of the members."""
        run = RunFolder(file.parent)
        members = run.members(config.training.members)
        files = tuple(member.best_file for member in members)
        missing = next((path for path in files if not path.is_file()), None)
        if missing is not None:
            raise CheckpointError(
                f"{missing}: a member of the ensemble is missing. Use the complete run folder."
            )
        return files
