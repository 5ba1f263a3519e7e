"""The runs of a benchmark, how far each of them is, and their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from segconf.comparison.compare import (
    Comparison,
    Evaluated,
    compare_evaluated,
    read_evaluation,
)
from segconf.comparison.published import has_published
from segconf.comparison.tables import write_comparison
from segconf.config.differences import setting_differences
from segconf.config.loading import load_config
from segconf.config.protocol import load_protocol, paper_protocol
from segconf.config.schema import ExperimentConfig
from segconf.data.cases import CaseSet
from segconf.data.datasets.dataset import FindOptions, dataset_key, find_cases
from segconf.data.id_lists import read_id_list
from segconf.errors import ConfigError
from segconf.methods.method import method_of
from segconf.outputs import check_output
from segconf.registry import METHODS
from segconf.runs.epochs import read_progress
from segconf.runs.run_folder import RunFolder
from segconf.training.task import settled

SPLIT = "test"


CALIBRATED = "test-calibrated"
"""Folder of the evaluation after temperature scaling, beside that before."""


Step = Literal["training", "evaluating", "calibrating", "evaluating calibrated"]


@dataclass(frozen=True, slots=True)
class BenchmarkRequest:
    """What was asked for.

    Attributes:
        dataset: `isic`, `demo` or a folder.
        labeled: numbers of training masks or labels; None stands for all.
        labeled_lists: folder with a list of ids for each of these numbers, such as
            `labeled_125.txt`; without it, the seed of a run draws them.
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
    labeled_lists: Path | None = None


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that the benchmark needs, whether it exists or not."""

    name: str
    folder: Path
    config: ExperimentConfig
    calibrate: bool

    @property
    def epochs(self) -> int:
        """Epochs of the training at most; those of the networks of an ensemble add up."""
        return self.config.training.epochs * self._networks

    @property
    def finished_epochs(self) -> int:
        """Epochs that are on the disk."""
        return sum(progress.epochs for progress in read_progress(self.folder))

    @property
    def is_trained(self) -> bool:
        """Whether every network has had its epochs, or has converged before."""
        finished = [one.is_finished(self.config.training) for one in read_progress(self.folder)]
        return finished.count(True) >= self._networks and RunFolder(self.folder).best_file.is_file()

    @property
    def has_begun(self) -> bool:
        """Whether there is a run to continue."""
        run = RunFolder(self.folder)
        return run.config_file.is_file() and run.split_file.is_file()

    @property
    def missing_steps(self) -> tuple[Step, ...]:
        """What is still to be done, in this order; nothing for a finished run."""
        steps: list[Step] = []
        if not self.is_trained:
            steps += ["training"]
        if steps or not self._is_evaluated(SPLIT):
            steps += ["evaluating"]
        if self.calibrate and (steps or not self._is_evaluated(CALIBRATED)):
            steps += ["calibrating", "evaluating calibrated"]
        return tuple(steps)

    @property
    def _networks(self) -> int:
        return len(method_of(self.config).member_configs(self.config)) or 1

    def _is_evaluated(self, name: str) -> bool:
        return (self.folder / "evaluation" / name / "metrics.json").is_file()


def benchmark_cases(request: BenchmarkRequest) -> CaseSet:
    """The data set of a benchmark.

    Raises:
        ConfigError: the request or the settings that all methods share have a mistake.
        DataError: there is no such data set, or it is none for the task.
    """
    _check(request)
    shared = load_config(request.config, overrides=request.overrides)
    return find_cases(request.dataset, request.data, options=FindOptions.of(shared.data))


def plan_runs(request: BenchmarkRequest, found: CaseSet | None = None) -> tuple[PlannedRun, ...]:
    """One run for each number of labels, method and seed, in the order in which they are done.

    Args:
        request: what was asked for.
        found: the data set, which decides the task and settings that follow from it; one for masks
            when not given.

    Raises:
        ConfigError: with every mistake of the files and of the request.
    """
    _check(request)
    task = "segmentation" if found is None else found.task
    protocol = load_protocol(request.protocol) if request.protocol else paper_protocol(task)
    origin = "protocol of the paper" if request.protocol is None else str(request.protocol)
    runs, mistakes = [], []
    for labels in request.labeled:
        chosen = _chosen_labels(labels, request.labeled_lists)
        for seed in range(request.seeds):
            for method in request.methods:
                flags = {"training.method": method, "training.seed": seed, **chosen}
                try:
                    config = load_config(
                        request.config,
                        layers={origin: protocol.settings_of(method, labels)},
                        overrides=request.overrides,
                        flags=flags,
                    )
                    config = config if found is None else settled(config, found)
                except ConfigError as error:
                    mistakes.append(str(error))
                    continue
                name = f"{method}-{'all' if labels is None else labels}-seed{seed}"
                runs.append(PlannedRun(name, request.out / name, config, request.calibrate))
    if mistakes:
        raise ConfigError("\n".join(dict.fromkeys(mistakes)))
    return tuple(runs)


def _chosen_labels(labels: int | None, lists: Path | None) -> dict[str, object]:
    """The setting that chooses the labeled images: their number, or the list of so many ids."""
    if lists is None or labels is None:
        return {"data.labeled": labels}
    file = lists / f"labeled_{labels}.txt"
    if not file.is_file():
        raise ConfigError(
            f"{file}: no such file. A folder of lists has one for each number of labels, with the "
            "id of an image on every line."
        )
    ids = len(set(read_id_list(file)))
    if ids != labels:
        raise ConfigError(f"{file}: holds {ids} ids, expected {labels}, as its name says.")
    return {"data.labeled_list": str(file)}


def check_folder(out: Path, found: CaseSet) -> None:
    """Refuse a folder that lies among the images, or holds something else than benchmarks.

    Raises:
        FileError: it does.
    """
    check_output(out, inputs=found.folders(), known=("logs", "configs", "tables", "*-seed*"))


def check_runs(runs: Sequence[PlannedRun], dataset: str) -> None:
    """Refuse to use or continue runs that are not those of the plan, and name every difference."""
    asked = dataset_key(dataset)
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
                    "Choose another folder, give the settings they were made with, or remove them.",
                ]
            )
        )


def _check(request: BenchmarkRequest) -> None:
    unknown = [method for method in request.methods if method not in METHODS.names()]
    if unknown:
        known = ", ".join(METHODS.names())
        raise ConfigError(f"methods = {unknown[0]}: expected all, or some of {known}.")
    if request.seeds < 1:
        raise ConfigError(f"seeds = {request.seeds}: expected a number from 1.")
    for name, values in (("labeled", request.labeled), ("methods", request.methods)):
        if not values or len(set(values)) < len(values):
            raise ConfigError(f"{name}: expected one value or several different ones.")


@dataclass(frozen=True, slots=True)
class BenchmarkTable:
    """The methods with one number of labels."""

    labels: int
    comparison: Comparison


def build_tables(runs: Sequence[PlannedRun], *, paper: bool = False) -> tuple[BenchmarkTable, ...]:
    """Compare the runs that are finished, those with the same number of labels.

    Args:
        runs: see `plan_runs`.
        paper: add the published numbers, where the paper has them for that number of labels.
    """
    by_labels: dict[int, list[Evaluated]] = {}
    for run in runs:
        if run.missing_steps:
            continue
        for evaluated in _evaluations(run):
            by_labels.setdefault(int(evaluated.about["labeled"]), []).append(evaluated)
    return tuple(
        BenchmarkTable(
            labels,
            compare_evaluated(
                evaluated,
                split=SPLIT,
                paper=labels if paper and _is_published(evaluated[0], labels) else None,
            ),
        )
        for labels, evaluated in by_labels.items()
    )


def _is_published(run: Evaluated, labels: int) -> bool:
    return has_published(run.task, run.classes, labels)


def write_tables(tables: Sequence[BenchmarkTable], out: Path) -> list[Path]:
    """Write the files of each comparison to a folder of its own, and return the folders."""
    folders = []
    for table in tables:
        folders.append(out / "tables" / f"{table.labels}-labels")
        write_comparison(table.comparison, folders[-1])
    return folders


def _evaluations(run: PlannedRun) -> list[Evaluated]:
    plain = read_evaluation(run.folder, SPLIT)
    # A run that was calibrated before it was first evaluated has only that one result.
    if not run.calibrate or plain.calibrated_by is not None:
        return [plain]
    return [plain, read_evaluation(run.folder, CALIBRATED)]
