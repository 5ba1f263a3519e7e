"""What two configurations differ in, for a run that is continued."""

from segconf.config.schema import ExperimentConfig

FREE_SETTINGS = {
    "training.checkpoint_every",
    "training.device",
    "training.history_storage",
    "training.workers",
}
"""Settings that do not change the outcome of a training."""


def setting_differences(before: ExperimentConfig, now: ExperimentConfig) -> dict[str, str]:
    """What differs, by key and in words; settings that do not change the outcome may."""
    old, new = _flat(before), _flat(now)
    return {
        key: f"{key} was {old[key]}, now {new[key]}"
        for key in new
        if new[key] != old[key] and key not in FREE_SETTINGS
    }


def _flat(config: ExperimentConfig) -> dict[str, object]:
    sections = config.model_dump(mode="json")
    return {f"{s}.{key}": value for s, values in sections.items() for key, value in values.items()}
