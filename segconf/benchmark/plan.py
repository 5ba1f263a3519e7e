"""Which runs a benchmark consists of, and how far each of them is."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from segconf.config import (
    METHODS,
    ExperimentConfig,
    load_config,
    load_protocol,
    paper_protocol,
)
from segconf.data.discovery import DEFAULT_FOLDERS
from segconf.errors import ConfigError
from segconf.runs import RunFolder
from segconf.training.resuming import setting_differences

SPLIT = "test"
CALIBRATED = "test-calibrated"
"""Folder of the evaluation after temperature scaling, beside that before."""

Step = Literal["training", "evaluating", "calibrating", "evaluating calibrated"]


@dataclass(frozen=True, slots=True)
class BenchmarkRequest:
    """What was asked for.

    Attributes:
        dataset: `isic`, `demo` or a folder.
        labeled: numbers of training masks; None stands for all.
        methods: values of `training.method`.
        seeds: how many; they are 0, 1, ...
        out: folder of all runs and tables.
        data: where a named data set lies.
        config: experiment file that all methods share.
        protocol: what differs between the methods; that of the paper when not given.
        overrides: `section.key=value` that wins over both files.
        calibrate: whether every run is evaluated once more, after temperature scaling.
    """

    dataset: str
    labeled: tuple[int | None, ...]
    methods: tuple[str, ...]
    seeds: int
    out: Path
    data: Path | None = None
    config: Path | None = None
    protocol: Path | None = None
    overrides: tuple[str, ...] = ()
    calibrate: bool = False


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that the benchmark needs, whether it exists or not."""

    name: str
    folder: Path
    config: ExperimentConfig
    calibrate: bool

    @property
    def epochs(self) -> int:
        """Epochs of the training; those of the networks of an ensemble add up."""
        training = self.config.training
        networks = training.members if training.method == "ensemble" else 1
        return training.epochs * int(networks)

    @property
    def finished_epochs(self) -> int:
        """Epochs that are on the disk."""
        tables = [*self.folder.glob("epochs.csv"), *self.folder.glob("members/*/epochs.csv")]
        return sum(max(len(table.read_bytes().splitlines()) - 1, 0) for table in tables)

    @property
    def has_begun(self) -> bool:
        """Whether there is a run to continue."""
        run = RunFolder(self.folder)
        return run.config_file.is_file() and run.split_file.is_file()

    @property
    def missing_steps(self) -> tuple[Step, ...]:
        """What is still to be done, in this order; nothing for a finished run."""
        steps: list[Step] = []
        if self.finished_epochs < self.epochs or not RunFolder(self.folder).best_file.is_file():
            steps += ["training"]
        if steps or not self._is_evaluated(SPLIT):
            steps += ["evaluating"]
        if self.calibrate and (steps or not self._is_evaluated(CALIBRATED)):
            steps += ["calibrating", "evaluating calibrated"]
        return tuple(steps)

    def _is_evaluated(self, name: str) -> bool:
        return (self.folder / "evaluation" / name / "metrics.json").is_file()


def plan_runs(request: BenchmarkRequest) -> tuple[PlannedRun, ...]:
    """One run for each number of labels, method and seed, in the order in which they are done.

    Raises:
        ConfigError: with every mistake of the files and of the request.
    """
    _check(request)
    protocol = paper_protocol() if request.protocol is None else load_protocol(request.protocol)
    origin = "protocol of the paper" if request.protocol is None else str(request.protocol)
    runs, mistakes = [], []
    for labels in request.labeled:
        for seed in range(request.seeds):
            for method in request.methods:
                flags = {"training.method": method, "training.seed": seed, "data.labeled": labels}
                try:
                    config = load_config(
                        request.config,
                        layers={origin: protocol.settings_of(method, labels)},
                        overrides=request.overrides,
                        flags=flags,
                    )
                except ConfigError as error:
                    mistakes.append(str(error))
                    continue
                name = f"{method}-{'all' if labels is None else labels}-seed{seed}"
                runs.append(PlannedRun(name, request.out / name, config, request.calibrate))
    if mistakes:
        raise ConfigError("\n".join(dict.fromkeys(mistakes)))
    return tuple(runs)


def check_runs(runs: Sequence[PlannedRun], dataset: str) -> None:
    """Refuse to use or continue runs that are not those of the plan, and name every difference."""
    asked = dataset if dataset in DEFAULT_FOLDERS else str(Path(dataset).absolute())
    problems = []
    for run in runs:
        if not run.has_begun:
            continue
        existing = RunFolder(run.folder)
        differences = list(setting_differences(existing.config(), run.config).values())
        used = existing.data().dataset
        if used != asked:
            differences.append(f"the data set was {used}, now {asked}")
        problems += [f"{run.folder}: {difference}" for difference in differences]
    if problems:
        raise ConfigError(
            "\n".join(
                [
                    "there are runs with other settings than the benchmark asks for:",
                    *(f"  {problem}" for problem in problems),
                    "Choose another folder with --out, give the settings they were made with, or "
                    "remove them.",
                ]
            )
        )


def _check(request: BenchmarkRequest) -> None:
    unknown = [method for method in request.methods if method not in METHODS]
    if unknown:
        raise ConfigError(f"--methods {unknown[0]}: expected all, or some of {', '.join(METHODS)}.")
    if request.seeds < 1:
        raise ConfigError(f"--seeds {request.seeds}: expected a number from 1.")
    for name, values in (("--labeled", request.labeled), ("--methods", request.methods)):
        if not values or len(set(values)) < len(values):
            raise ConfigError(f"{name}: expected one value or several different ones.")
