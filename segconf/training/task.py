"""What a data set decides: the task, its classes, and settings that follow from them."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from segconf.config.schema import ExperimentConfig
from segconf.data.cases import CaseSet, raise_problems
from segconf.errors import ConfigError
from segconf.images.io import read_header

SMALL_SIDE = 64
LARGE_SIZE = (224, 224)
"""Grid of labeled images that are larger than small ones, where no other is set."""
PADDING = 4

logger = logging.getLogger(__name__)


def settled(config: ExperimentConfig, found: CaseSet) -> ExperimentConfig:
    """The configuration with what the data set decides, for labels; for masks as it is.

    Settings that were given stay. Others become those of the data set, or of classification.

    Raises:
        ConfigError: a setting contradicts the data set.
        DataError: the data set is broken.
    """
    if found.task == "segmentation":
        return config
    raise_problems(found.problems, found.root)
    _check_classes(config, found)
    data: dict[str, Any] = {"task": found.task, "class_names": found.class_names}
    if found.columns is None and "size" not in config.data.model_fields_set:
        data["size"] = _size(found)
        logger.info("images on a grid of %d x %d", *data["size"])
    model: dict[str, Any] = {"classes": len(found.class_names)}
    if found.columns is not None:
        _check_table(config, found.columns)
        data |= {"size": (1, 1), "columns": config.data.columns or found.columns}
        model |= {"channels": len(found.columns), "encoder": "mlp", "encoder_weights": "none"}
    usual: Mapping[str, Any] = {"scale": (1.0, 1.0), "vertical_flip": 0.0, "padding": PADDING}
    given = config.augmentation.model_fields_set
    views = {name: value for name, value in usual.items() if name not in given}
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data),
            "augmentation": config.augmentation.model_copy(update=views),
            "model": config.model.model_copy(update=model),
        }
    )


def _check_classes(config: ExperimentConfig, found: CaseSet) -> None:
    names = found.class_names
    if "classes" in config.model.model_fields_set and config.model.classes != len(names):
        raise ConfigError(
            f"model.classes = {config.model.classes}: {found.root} has {len(names)} classes "
            f"({', '.join(names[:10])}{', ...' if len(names) > 10 else ''}). Leave it out."  # noqa: PLR2004
        )


def _check_table(config: ExperimentConfig, columns: Sequence[str]) -> None:
    given = config.model.model_fields_set
    if "encoder" in given and config.model.encoder != "mlp":
        raise ConfigError(
            f"model.encoder = {config.model.encoder}: a network for images, but this is a table. "
            "Leave it out, or take mlp."
        )
    if "channels" in given and config.model.channels != len(columns):
        raise ConfigError(
            f"model.channels = {config.model.channels}: the table has {len(columns)} columns of "
            "numbers. Leave it out."
        )
    if config.data.columns and sorted(config.data.columns) != sorted(columns):
        raise ConfigError(
            f"data.columns: the table has other columns of numbers: {', '.join(columns[:10])}"
            f"{', ...' if len(columns) > 10 else ''}. Leave it out."  # noqa: PLR2004
        )


def _size(found: CaseSet) -> tuple[int, int]:
    """The size of small images; larger ones come in many sizes."""
    if found.size is not None:
        return found.size
    height, width = read_header(found.training[0].image_path).size
    return (height, width) if max(height, width) <= SMALL_SIDE else LARGE_SIZE
