"""Protocol of a benchmark: epochs, batches and other settings of each method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from segconf.config.ranges import Count, Section, Task
from segconf.config.yaml_text import read_yaml
from segconf.errors import ConfigError
from segconf.registry import METHODS

PAPER_EPOCHS: Mapping[Task, Mapping[int, int]] = {
    "segmentation": {125: 1500, 250: 700, 500: 300, 2000: 200},
    "classification": {2500: 2700, 5000: 1200, 10000: 600, 50000: 300},
}
"""Epochs of the paper's baselines by number of labels: about as many steps with all numbers."""

Settings = Mapping[str, Any]
"""Values by `section.key`."""


class MethodProtocol(Section):
    """Settings of a method, and those that depend on the number of labels."""

    settings: dict[str, Any] = Field(default_factory=dict)
    labels: dict[Count, dict[str, Any]] = Field(default_factory=dict)
    """By number of labels; where there are any, other numbers are refused."""


class Protocol(Section):
    """Settings by method; a method that is not named keeps those of the experiment file."""

    methods: dict[str, MethodProtocol] = Field(default_factory=dict)

    @field_validator("methods")
    @classmethod
    def _known(cls, methods: dict[str, MethodProtocol]) -> dict[str, MethodProtocol]:
        unknown = [name for name in methods if name not in METHODS.names()]
        if unknown:
            raise ValueError(f"{unknown[0]} is not one of {', '.join(METHODS.names())}")
        return methods

    def settings_of(self, method: str, labels: int | None) -> Settings:
        """Settings of a method for a number of labels; None stands for all masks.

        Raises:
            ConfigError: when the method is described for other numbers of labels only.
        """
        chosen = self.methods.get(method, MethodProtocol())
        if not chosen.labels:
            return chosen.settings
        if labels not in chosen.labels:
            known = ", ".join(map(str, chosen.labels))
            asked = "all" if labels is None else str(labels)
            raise ConfigError(
                f"{method} with {asked} labels: the protocol has settings for {known} labels. "
                "Choose one of them, or write a protocol for this number."
            )
        return {**chosen.settings, **chosen.labels[labels]}


def load_protocol(path: Path) -> Protocol:
    """Read a protocol.

    Raises:
        ConfigError: with one line for each mistake of the file.
    """
    try:
        return Protocol.model_validate(read_yaml(path))
    except ValidationError as error:
        lines = [
            f"{path}: {'.'.join(map(str, item['loc']))}: "
            f"{item['msg'].removeprefix('Value error, ')}"
            for item in error.errors()
        ]
        raise ConfigError("\n".join(lines)) from None


def paper_protocol(task: Task) -> Protocol:
    """The paper's, for `consistency` and its rivals.

    Masks: 200 epochs of 32 + 64 images, rivals 64 images a step. Labels, as with CIFAR: 300 epochs
    of 64 + 128 images, rivals 128 images a step.
    """
    epochs, labeled = (200, 32) if task == "segmentation" else (300, 64)
    baseline = MethodProtocol(
        settings={"training.batch_labeled": 2 * labeled},
        labels={labels: {"training.epochs": n} for labels, n in PAPER_EPOCHS[task].items()},
    )
    ours = MethodProtocol(
        settings={
            "training.epochs": epochs,
            "training.batch_labeled": labeled,
            "training.batch_unlabeled": 2 * labeled,
        }
    )
    return Protocol(methods=dict.fromkeys(METHODS.names(), baseline) | {"consistency": ours})
