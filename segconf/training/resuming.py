"""Whether a run can be continued: same configuration, same data."""

from segconf.config.schema import ExperimentConfig, setting_differences
from segconf.errors import TrainingError
from segconf.methods.method import method_of
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder


def check_same_run(run: RunFolder, config: ExperimentConfig, data: RunData) -> None:
    """Refuse to continue a run with other settings or other data, and name every difference."""
    changed = setting_differences(run.config(), config)
    differences = [text for key, text in changed.items() if key != "training.epochs"]
    if config.training.epochs < run.config().training.epochs:
        differences.append(changed["training.epochs"])
    earlier = run.config().training
    planned = method_of(config).snapshot_epochs(config.training)
    taken = tuple(epoch for epoch in planned if epoch <= earlier.epochs)
    if taken != method_of(run.config()).snapshot_epochs(earlier):
        differences.append(
            "training.epochs decides when snapshots are taken, and they have been taken already"
        )
    old = run.data()
    for role in ("labeled", "unlabeled", "validation"):
        missing = sorted(set(old.ids[role]) - set(data.ids[role]))
        added = sorted(set(data.ids[role]) - set(old.ids[role]))
        if missing or added:
            example = (missing or added)[0]
            differences.append(
                f"{role} images: {len(missing)} gone, {len(added)} new, such as {example}"
            )
    if not differences and old.fingerprint != data.fingerprint:
        differences.append("the files of the data set have other sizes than before")
    if differences:
        raise TrainingError(
            "\n".join(
                [
                    f"{run.path}: cannot be continued, because it would not be the same run:",
                    *(f"  {difference}" for difference in differences),
                    "Start a new run, or give the settings and the data it began with.",
                ]
            )
        )
