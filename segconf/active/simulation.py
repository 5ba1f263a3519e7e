"""Active learning simulated on a labeled data set: train, query, reveal labels, repeat."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from segconf.active.query import Query, query
from segconf.active.queue import write_queue
from segconf.active.simulation_results import Point, write_results
from segconf.active.strategies import Strategy, check_strategy
from segconf.config.differences import setting_differences
from segconf.config.ranges import Count, Section
from segconf.config.records import read_record
from segconf.config.schema import ExperimentConfig
from segconf.data.cache import Progress
from segconf.data.cases import raise_problems
from segconf.data.datasets.dataset import FindOptions, dataset_key, find_cases
from segconf.data.splits import label_unit
from segconf.errors import ConfigError, DataError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.evaluation.reading import read_metrics
from segconf.files import write_text
from segconf.locks import locked
from segconf.methods.method import method_of
from segconf.outputs import check_output
from segconf.runs.run_folder import RunFolder
from segconf.training.epoch import TrainingListener
from segconf.training.train import train

SETTINGS = "simulation.json"

OnPoint = Callable[[Point, int, int], None]
"""Called after every training with its point, how many are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What is simulated.

    Attributes:
        dataset: `isic`, `demo` or a folder.
        data: where a named data set lies.
        config: of every training, but for labels and seed.
        strategies: compared with each other.
        rounds: of query and training, after the start.
        budget: images, or groups where one holds several cases, whose masks or labels a round
            reveals.
        start: as many of them are labeled in the first training, the same for all strategies.
        seeds: 0, 1, ...: how many.
    """

    dataset: str
    data: Path | None
    config: ExperimentConfig
    strategies: tuple[Strategy, ...]
    rounds: int
    budget: int
    start: int
    seeds: int

    def check(self) -> None:
        """Refuse what cannot be simulated, before anything is trained."""
        for name in ("rounds", "budget", "start", "seeds"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}: expected a number from 1.")
        method = method_of(self.config)
        keeps_history = method.uses_history and method.uses_unlabeled
        if "consistency" in self.strategies and not keeps_history:
            raise ConfigError(
                f"strategies = consistency: the method {method.name} keeps no history of unlabeled "
                "images. Leave the strategy out, or use training.method=consistency."
            )
        options = self.config.data
        found = find_cases(self.dataset, self.data, options=FindOptions.of(options))
        raise_problems(found.problems, found.root)
        for strategy in self.strategies:
            check_strategy(strategy, found.task)
        kind = "mask" if found.task == "segmentation" else "label"
        hidden = [case.id for case in found.training if not case.is_labeled]
        if hidden:
            raise DataError(
                f"{found.root}: {len(hidden)} training images have no {kind}, such as {hidden[0]}. "
                f"A simulation reveals {kind}s: use a data set in which every image has one."
            )
        if not any(case.is_labeled for case in found.test):
            raise DataError(f"{found.root}: no test images with {kind}s to measure on.")
        needed = self.start + self.rounds * self.budget
        unit = label_unit(found.training)
        available = len({case.group if unit == "groups" else case.id for case in found.training})
        if needed > available:
            raise ConfigError(
                f"start = {self.start}, rounds = {self.rounds}, budget = {self.budget}: {needed} "
                f"labels, but {found.root} has {available} training {unit}. Lower one of them."
            )

    def configured(self, *, seed: int, queue: Path | None = None) -> ExperimentConfig:
        """Configuration of a training: from the start labels, or those that a queue adds."""
        # What was not set stays so: a data set of labels decides the classes and the grid.
        values = self.config.model_dump(exclude_unset=True)
        choice = {"labeled": None if queue else self.start, "labels_from_query": queue}
        data = {"labeled_list": None, "corrections": (), **choice}
        # These networks predict only images of their own data set.
        training = {"seed": seed, "ood_detector": False}
        for section, changes in (("data", data), ("training", training)):
            values[section] = values.get(section, {}) | changes
        return ExperimentConfig.model_validate(values)


def simulate(
    plan: Simulation,
    out: Path,
    *,
    listener: TrainingListener | None = None,
    on_progress: Progress | None = None,
    on_point: OnPoint | None = None,
) -> tuple[Point, ...]:
    """Run every round whose result is not there yet, then write active.csv and active.png.

    Args:
        plan: what is simulated. Rounds, strategies and seeds may be added to a finished one.
        out: folder for everything; the same one continues an interrupted simulation.
        listener: is told about the trainings.
        on_progress: is told about queries and evaluations.
        on_point: is told about finished trainings.
    """
    plan.check()
    check_output(out, inputs=find_cases(plan.dataset, plan.data).folders(), mark=SETTINGS)
    with locked(out, wait=False, task="simulates in it"):
        return _simulate(plan, out, listener, on_progress, on_point)


def _simulate(
    plan: Simulation,
    out: Path,
    listener: TrainingListener | None,
    on_progress: Progress | None,
    on_point: OnPoint | None,
) -> tuple[Point, ...]:
    _remember(plan, out)
    total = plan.seeds * (1 + len(plan.strategies) * plan.rounds)
    points: list[Point] = []
    worker = _Worker(plan, out, listener, on_progress)
    for done, trained in enumerate(worker.points(), start=1):
        points += trained
        if on_point is not None:
            on_point(trained[0], done, total)
    points.sort(key=lambda point: (plan.strategies.index(point.strategy), point.seed, point.round))
    write_results(points, out)
    return tuple(points)


@dataclass(frozen=True, slots=True)
class _Worker:
    plan: Simulation
    out: Path
    listener: TrainingListener | None
    on_progress: Progress | None

    def points(self) -> Iterator[list[Point]]:
        """The points of one training after another; that of a start counts for every strategy."""
        plan = self.plan
        for seed in range(plan.seeds):
            start = self.out / f"seed{seed}" / "start"
            scores = self._scores(start, seed, None)
            yield [Point(name, seed, 0, plan.start, scores) for name in plan.strategies]
            for strategy in plan.strategies:
                before = start
                for number in range(1, plan.rounds + 1):
                    run = self.out / f"seed{seed}" / strategy / f"round{number}"
                    queue = run.with_suffix(".csv")
                    if not queue.is_file():
                        self._ask(before, strategy, seed, queue)
                    scores = self._scores(run, seed, queue)
                    labels = plan.start + number * plan.budget
                    yield [Point(strategy, seed, number, labels, scores)]
                    before = run

    def _ask(self, run: Path, strategy: Strategy, seed: int, queue: Path) -> None:
        device = self.plan.config.training.device
        asked = Query(self.plan.budget, strategy, seed=seed, device=device)
        write_queue(query(run, asked, on_progress=self.on_progress), queue)

    def _scores(self, folder: Path, seed: int, queue: Path | None) -> dict[str, float]:
        """Test scores of a training, done now unless it was done before."""
        found = folder / "evaluation" / "test" / "metrics.json"
        if not found.is_file():
            self._train(folder, seed, queue)
            device = self.plan.config.training.device
            evaluate(folder, EvaluationOptions(device=device), on_progress=self.on_progress)
        way_out = f"Remove the folder {found.parent} and start again."
        about, scores = read_metrics(found, way_out=way_out)
        quality = "accuracy" if about.get("task") == "classification" else "miou"
        return {metric: scores.get(metric, math.nan) for metric in (quality, "aurc")}

    def _train(self, folder: Path, seed: int, queue: Path | None) -> None:
        run = RunFolder(folder)
        resume = run.split_file.is_file()
        if not resume:
            shutil.rmtree(folder, ignore_errors=True)  # stopped before anything was trained
        # That of the run names its list as it was called from where the run was started.
        config = run.config() if resume else self.plan.configured(seed=seed, queue=queue)
        train(
            config,
            dataset=self.plan.dataset,
            data=self.plan.data,
            folder=folder,
            resume=resume,
            calibrate=False,
            listener=self.listener,
        )


class _Settings(Section):
    """What all trainings of a folder have in common."""

    dataset: str
    start: Count
    budget: Count
    config: ExperimentConfig


def _remember(plan: Simulation, out: Path) -> None:
    """Note the settings in a new folder; refuse a folder with other ones."""
    settings = {
        "dataset": dataset_key(plan.dataset),
        "start": plan.start,
        "budget": plan.budget,
        "config": plan.config.model_dump(mode="json"),
    }
    file = out / SETTINGS
    if not file.exists():
        write_text(file, json.dumps(settings, indent=1))
        return
    before = read_record(file, _Settings, error=DataError, way_out="Choose another folder.")
    changed = [
        f"{key} was {getattr(before, key)}, now {settings[key]}"
        for key in ("dataset", "start", "budget")
        if getattr(before, key) != settings[key]
    ]
    differences = setting_differences(before.config, plan.config)
    changed += [words for key, words in differences.items() if key != "training.seed"]
    if changed:
        head = f"{out}: holds a simulation with other settings:"
        lines = (f"  {words}" for words in changed)
        raise ConfigError("\n".join([head, *lines, "Choose another folder, or the same settings."]))
