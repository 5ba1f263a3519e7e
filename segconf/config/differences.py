"""What two configurations differ in, for a run that is continued."""

from segconf.config.schema import ExperimentConfig

FREE_SETTINGS = {
    "training.checkpoint_every",
    "training.device",
    "training.history_storage",
    "training.workers",
}
"""Settings that do not change the outcome of a training."""


OF_THE_DATA = {
    *("data.task", "data.size", "data.class_names", "data.columns"),
    *("model.classes", "model.channels", "model.encoder", "model.encoder_weights"),
    *("augmentation.scale", "augmentation.vertical_flip", "augmentation.padding"),
}
"""Settings that a data set of labels decides where they are not given."""


def setting_differences(before: ExperimentConfig, now: ExperimentConfig) -> dict[str, str]:
    """What differs, by key and in words; settings that do not change the outcome may.

    Args:
        before: of a run that has begun.
        now: the same, or what was asked for, before the data set has decided the rest.
    """
    old, new = _flat(before), _flat(now)
    decided = {
        key
        for key in OF_THE_DATA
        if before.data.task == "classification" and not _is_given(now, key)
    }
    if not before.data.columns:
        decided.add("data.columns")  # a run of an earlier version does not know them
    return {
        key: f"{key} was {old[key]}, now {new[key]}"
        for key in new
        if new[key] != old[key] and key not in FREE_SETTINGS | decided
    }


def _is_given(config: ExperimentConfig, key: str) -> bool:
    section, _, name = key.partition(".")
    return name in getattr(config, section).model_fields_set


def _flat(config: ExperimentConfig) -> dict[str, object]:
    sections = config.model_dump(mode="json")
    return {f"{s}.{key}": value for s, values in sections.items() for key, value in values.items()}
