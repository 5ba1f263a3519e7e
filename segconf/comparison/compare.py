"""Runs side by side: the table of the paper, and differences that are paired by image.

Both methods of a difference see the same images. What is resampled are groups of images and, where
there are several, the seeds of each method.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.checkpoints.weights import BEST, weights_hash
from segconf.comparison.published import published_values
from segconf.config.ranges import Task
from segconf.errors import CheckpointError, ConfigError
from segconf.evaluation.image_counts import IMAGE_COUNTS, ImageCounts, load_image_counts
from segconf.evaluation.reading import read_metrics
from segconf.metrics.bootstrap import (
    Interval,
    Resampled,
    bootstrap_differences,
    draw_units,
    resampled_metrics,
    resampled_unit,
)
from segconf.metrics.definitions import METRICS, compared_metrics
from segconf.runs.run_folder import RunFolder

METRICS_FILE = "metrics.json"


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluated run."""

    path: Path
    about: Mapping[str, Any]
    metrics: Mapping[str, float]  # raw, strict
    counts: ImageCounts

    @property
    def task(self) -> Task:
        """What was evaluated."""
        return "segmentation" if self.counts.labels is None else "classification"

    @property
    def classes(self) -> int:
        """Classes of the labels; 0 for masks."""
        return len(self.about.get("classes", ()))

    @property
    def described_task(self) -> str:
        """The task in words."""
        return f"labels of {self.classes} classes" if self.classes else "masks"

    @property
    def group(self) -> str:
        """Method, weights and number of labels: runs of a group differ by their seed."""
        name = str(self.about["method"])
        if self.about.get("weights") == "last":
            name += ", last epoch"
        if self.calibrated_by is not None:
            name += f" + {self.calibrated_by}"
        return f"{name} ({self.about['labeled']} labels)"

    @property
    def calibrated_by(self) -> str | None:
        """Kind of the calibrator; None for one that leaves logits alone."""
        kind = str(self.about.get("scaling", "temperature"))
        return None if kind == "temperature" and self.about.get("temperature", 1) == 1 else kind


@dataclass(frozen=True, slots=True)
class Effect:
    """Difference to the baseline as a fraction of it, and its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: the runs of one method, or published numbers."""

    name: str
    runs: tuple[Evaluated, ...]
    values: Mapping[str, float]  # mean over the runs, raw
    spread: Mapping[str, float]  # standard deviation over the runs; empty for a single one
    difference: Mapping[str, Interval]  # 95% interval of row minus baseline; empty for that
    effect: Mapping[str, Effect]  # the same relative to the baseline

    @property
    def is_published(self) -> bool:
        """Whether the numbers are those of the paper."""
        return not self.runs


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, that of the baseline first; the differences of the others refer to it."""

    rows: tuple[Row, ...]
    baseline: str
    split: str

    @property
    def resampled(self) -> str:
        """What the intervals of the differences resample: images or groups of them, and seeds."""
        ours = [row for row in self.rows if not row.is_published]
        unit = resampled_unit(ours[0].runs[0].counts.groups)
        return f"{unit} and seeds" if any(len(row.runs) > 1 for row in ours) else unit

    @property
    def metrics(self) -> tuple[str, ...]:
        """Columns: the metrics to compare that all our rows have."""
        ours = [row for row in self.rows if not row.is_published]
        return tuple(
            name
            for name in compared_metrics(labels=self.has_labels)
            if all(name in row.values for row in ours)
        )

    @property
    def has_labels(self) -> bool:
        """Whether labels of images were evaluated, not masks."""
        ours = next(row for row in self.rows if not row.is_published)
        return ours.runs[0].task == "classification"

    def best(self, metric: str) -> float:
        """The best of our rows."""
        ours = (row.values[metric] for row in self.rows if not row.is_published)
        values = [value for value in ours if not math.isnan(value)]
        return (max if METRICS[metric].higher_is_better else min)(values, default=math.nan)


def compare(
    runs: Sequence[Path],
    *,
    split: str = "test",
    baseline: str | None = None,
    paper: int | None = None,
) -> Comparison:
    """Put evaluated runs into one table.

    Args:
        runs: run folders, each evaluated on the split, or kept evaluation folders.
        split: test or val.
        baseline: method that differences refer to; `softmax` where there is one, else the first.
        paper: number of labels whose published numbers are added.
    """
    evaluated = [read_evaluation(path, split) for path in runs]
    return compare_evaluated(evaluated, split=split, baseline=baseline, paper=paper)


def compare_evaluated(
    evaluated: Sequence[Evaluated],
    *,
    split: str,
    baseline: str | None = None,
    paper: int | None = None,
) -> Comparison:
    """Put evaluations that were read before into one table; see `compare`."""
    _check_same_images(evaluated)
    groups: dict[str, list[Evaluated]] = {}
    for run in evaluated:
        groups.setdefault(run.group, []).append(run)
    chosen = _baseline(groups, baseline)
    names = [chosen, *(name for name in groups if name != chosen)]
    rows = _with_differences([_row(name, groups[name]) for name in names])
    if paper is not None:
        first = evaluated[0]
        published = published_values(first.task, first.classes, paper)
        rows += [Row(name, (), values, {}, {}, {}) for name, values in published.items()]
    return Comparison(tuple(rows), chosen, split)


def read_evaluation(run: Path, split: str) -> Evaluated:
    """What `evaluate` wrote for a run, or an evaluation folder that is kept without its run.

    Raises:
        CheckpointError: there is no evaluation, or it is one of other weights than the run has now.
            Where the weights have been removed, the evaluation is taken as it is.
    """
    kept_alone = (run / METRICS_FILE).is_file()
    folder = run if kept_alone else run / "evaluation" / split
    if not all((folder / name).exists() for name in (METRICS_FILE, IMAGE_COUNTS)):
        RunFolder(run).data()  # says so if this is no run folder
        raise CheckpointError(
            f"{run}: not evaluated on the {split} images yet. Run: {_command(run, split)}"
        )
    way_out = f"Evaluate again: {_command(run, split)}"
    about, values = read_metrics(folder / METRICS_FILE, way_out=way_out)
    counts = load_image_counts(folder / IMAGE_COUNTS, way_out=way_out)
    judged_by_best = about["weights"] == "best" and (run / BEST).is_file()
    if judged_by_best and about.get("weights_sha256") != weights_hash(run):
        raise CheckpointError(
            f"{folder}: belongs to other weights than those now in {run}. Evaluate it again: "
            f"{_command(run, split)}"
        )
    return Evaluated(run, about, values, counts)


def _command(run: Path, split: str) -> str:
    """The command whose evaluation is read: `split` may also name a folder of a benchmark."""
    match split:
        case "test":
            return f"segconf evaluate {run}"
        case "val":
            return f"segconf evaluate {run} --split val"
        case "test-last":
            return f"segconf evaluate {run} --weights last"
        case _:
            return f"segconf evaluate {run} --out {run / 'evaluation' / split}"


def _check_same_images(runs: Sequence[Evaluated]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if (run.task, run.classes) != (first.task, first.classes):
            raise ConfigError(
                f"{run.path} and {first.path} are runs of different tasks ({run.described_task} "
                f"and {first.described_task}). Compare those of one."
            )
        images, others = run.counts.cases, first.counts.cases
        if images != others:
            raise ConfigError(
                f"{run.path} and {first.path} were evaluated on different images "
                f"({len(images)} and {len(others)}). Evaluate them on the same."
            )
        if list(run.counts.groups) != list(first.counts.groups):
            raise ConfigError(
                f"{run.path} and {first.path} were evaluated with different groups of the same "
                "images. Evaluate both again."
            )
        if run.about["grid"] != first.about["grid"]:
            raise ConfigError(
                f"{run.path} was evaluated on the grid {run.about['grid']}, {first.path} on "
                f"{first.about['grid']}. Evaluate both on the same grid."
            )


def _baseline(groups: Mapping[str, Sequence[Evaluated]], asked: str | None) -> str:
    wanted = asked or "softmax"
    for name, members in groups.items():
        if wanted in (name, members[0].about["method"]):
            return name
    if asked is not None:
        raise ConfigError(f"baseline = {asked}: no such method. There are {', '.join(groups)}.")
    return next(iter(groups))


def _row(name: str, members: Sequence[Evaluated]) -> Row:
    columns = [m for m in members[0].metrics if all(m in run.metrics for run in members)]
    values = {m: statistics.fmean(run.metrics[m] for run in members) for m in columns}
    spread = {}
    if len(members) > 1:
        spread = {m: statistics.stdev(run.metrics[m] for run in members) for m in columns}
    by_seed = sorted(members, key=lambda run: run.about.get("seed") or 0)
    return Row(name, tuple(by_seed), values, spread, {}, {})


def _with_differences(rows: Sequence[Row]) -> list[Row]:
    """The rows with their differences to the first one; all see the same draws of images."""
    baseline, *others = rows
    if not others:
        return [baseline]
    weights = draw_units(baseline.runs[0].counts.groups, torch.Generator().manual_seed(0))  # (R, I)
    theirs = _resampled(baseline, weights)
    found = [baseline]
    for row in others:
        intervals = bootstrap_differences(
            _resampled(row, weights),
            theirs,
            torch.Generator().manual_seed(1),
            paired_seeds=_have_same_seeds(row, baseline),
        )
        effect = {
            m: Effect(row.values[m] / baseline.values[m] - 1, *intervals.relative[m])
            for m in row.values
            if baseline.values.get(m)
        }
        found.append(replace(row, difference=intervals.absolute, effect=effect))
    return found


def _resampled(row: Row, weights: NDArray[np.float64]) -> list[Resampled]:
    return [resampled_metrics(run.counts.images, weights) for run in row.runs]


def _have_same_seeds(row: Row, baseline: Row) -> bool:
    """Whether the runs of both, in their order, have the same seeds, each once."""
    own, other = ([run.about.get("seed") for run in one.runs] for one in (row, baseline))
    return own == other and None not in own and len(set(own)) == len(own)
