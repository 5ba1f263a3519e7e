"""A deep ensemble: networks that share images and settings, and differ in their seed.

Every member is a run of its own in `members/`. What belongs to the ensemble as a whole (its
configuration, and the temperature of its averaged probabilities) is in the metadata of
`best.safetensors`, which holds the weights of the first member and appears when all have finished.
"""

from segconf.checkpoints.snapshots import read_weights
from segconf.checkpoints.weights import save_checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.errors import TrainingError
from segconf.runs.run_folder import RunFolder


def member_config(config: ExperimentConfig, number: int) -> ExperimentConfig:
    """Configuration of a member: a softmax run with a seed of its own and the common images."""
    training, data = config.training, config.data
    split_seed = training.seed if data.split_seed is None else data.split_seed
    # An ensemble has no score of strangers, so its members need not look for features.
    own = {"method": "softmax", "seed": training.seed + number, "features": "online"}
    return config.model_copy(
        update={
            "training": training.model_copy(update=own),
            "data": data.model_copy(update={"split_seed": split_seed}),
        }
    )


def open_ensemble(run: RunFolder, config: ExperimentConfig) -> None:
    """Prepare for continuing; with more epochs than before it is no longer finished."""
    if config.training.epochs != run.config().training.epochs:
        run.best_file.unlink(missing_ok=True)
    run.extend(config)


def finish_ensemble(run: RunFolder, config: ExperimentConfig) -> None:
    """Let an ensemble be used; one that already was finished keeps its temperature."""
    if run.best_file.is_file():
        return
    first = run.members(config.training.members)[0]
    try:
        save_checkpoint(run.best_file, read_weights(first.best_file), config)
    except OSError as error:
        raise TrainingError(
            f"{run.best_file}: cannot be written ({error.strerror or error}). Free some space and "
            f"continue with --resume {run.path}."
        ) from error
