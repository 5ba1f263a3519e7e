"""Runs side by side: the table of the paper, and differences that are paired by image.

Both runs of a difference see the same images; what is resampled are their groups.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from segconf.checkpoints.weights import BEST, weights_hash
from segconf.errors import CheckpointError, ConfigError
from segconf.evaluation.reading import load_curves, load_summaries, read_metrics
from segconf.evaluation.report import SUMMARIES
from segconf.metrics.bootstrap import bootstrap_differences, resampled_unit
from segconf.metrics.definitions import METRICS
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.reliability import ReliabilityCurve
from segconf.metrics.risk_coverage import RiskCoverageCurve

PUBLISHED_METRICS = ("miou", "aurc", "eaurc", "fpr95", "ece", "nll", "brier")

PUBLISHED = {
    125: {
        "softmax": (0.801, 34.36, 31.33, 60.90, 6.45, 3.82, 13.96),
        "aes": (0.802, 21.12, 18.07, 57.26, 5.46, 4.17, 12.84),
        "mcdropout": (0.801, 30.23, 27.19, 61.45, 6.36, 4.05, 13.88),
        "aleatoric": (0.802, 27.66, 24.62, 59.55, 6.21, 3.86, 13.68),
        "crl": (0.810, 22.14, 19.33, 62.15, 4.11, 2.86, 12.25),
        "consistency": (0.812, 14.11, 11.23, 56.81, 3.05, 2.31, 11.46),
    },
    250: {
        "softmax": (0.819, 28.91, 26.45, 58.51, 5.62, 3.35, 12.45),
        "aes": (0.819, 18.08, 15.60, 54.09, 4.57, 3.41, 11.38),
        "mcdropout": (0.819, 25.38, 22.89, 58.31, 5.45, 3.39, 12.27),
        "aleatoric": (0.817, 25.96, 23.37, 57.80, 5.49, 3.43, 12.43),
        "crl": (0.818, 16.43, 13.90, 62.56, 3.93, 2.60, 11.64),
        "consistency": (0.817, 12.79, 10.21, 54.51, 2.56, 2.23, 10.71),
    },
    500: {
        "softmax": (0.822, 23.45, 21.09, 56.90, 5.22, 2.98, 11.88),
        "aes": (0.823, 15.74, 13.39, 54.29, 4.39, 3.10, 11.10),
        "mcdropout": (0.821, 21.21, 18.83, 56.69, 4.61, 2.68, 11.49),
        "aleatoric": (0.821, 21.32, 18.96, 56.41, 5.07, 3.20, 11.73),
        "crl": (0.822, 14.04, 11.64, 55.46, 2.82, 2.33, 10.64),
        "consistency": (0.823, 11.85, 9.42, 54.14, 2.48, 2.08, 10.44),
    },
    2000: {
        "softmax": (0.831, 16.39, 14.29, 53.69, 4.67, 2.87, 10.94),
        "aes": (0.829, 12.54, 10.40, 51.02, 3.98, 3.09, 10.40),
        "mcdropout": (0.834, 15.41, 13.40, 54.32, 4.51, 2.86, 10.69),
        "aleatoric": (0.828, 14.81, 12.66, 54.37, 4.57, 3.04, 10.94),
        "crl": (0.834, 10.17, 8.08, 51.83, 2.61, 2.02, 9.76),
        "consistency": (0.838, 11.18, 9.17, 52.27, 2.23, 1.89, 9.49),
    },
}
"""ISIC 2017 test, 600 images, UNet-ResNet34: labels, method, PUBLISHED_METRICS in their scales."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluated run."""

    path: Path
    about: Mapping[str, Any]
    metrics: Mapping[str, float]  # raw, strict
    summaries: Mapping[str, ImageSummary]
    groups: Sequence[str]  # of each image
    curve: RiskCoverageCurve
    reliability: ReliabilityCurve

    @property
    def group(self) -> str:
        """Method and number of labels: runs of a group differ by their seed."""
        calibrated = " + temperature" if self.about.get("temperature", 1) != 1 else ""
        return f"{self.about['method']}{calibrated} ({self.about['labeled']} labels)"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: the runs of one method, or published numbers."""

    name: str
    runs: tuple[Evaluated, ...]
    values: Mapping[str, float]  # mean over the runs, raw
    spread: Mapping[str, float]  # standard deviation over the runs; empty for a single one
    difference: Mapping[str, tuple[float, float]]  # 95% interval of row minus baseline

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
        """What the intervals of the differences resample: images, or groups of them."""
        ours = next(row for row in self.rows if not row.is_published)
        return resampled_unit(ours.runs[0].groups)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Columns: the metrics to compare that all our rows have."""
        ours = [row for row in self.rows if not row.is_published]
        return tuple(
            name
            for name, metric in METRICS.items()
            if metric.in_comparisons and all(name in row.values for row in ours)
        )

    def best(self, metric: str) -> float:
        """The best of our rows."""
        values = [row.values[metric] for row in self.rows if not row.is_published]
        return max(values) if METRICS[metric].higher_is_better else min(values)


def compare(
    runs: Sequence[Path],
    *,
    split: str = "test",
    baseline: str | None = None,
    paper: int | None = None,
) -> Comparison:
    """Put evaluated runs into one table.

    Args:
        runs: run folders, each evaluated on the split.
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
    rows = [_row(name, groups[name], groups[chosen]) for name in names]
    if paper is not None:
        if paper not in PUBLISHED:
            known = ", ".join(map(str, PUBLISHED))
            raise ConfigError(f"paper = {paper} labels: the paper has numbers for {known}.")
        rows += [_published(name, paper) for name in PUBLISHED[paper]]
    return Comparison(tuple(rows), chosen, split)


def read_evaluation(run: Path, split: str) -> Evaluated:
    """What `evaluate` wrote for a run.

    Raises:
        CheckpointError: there is no evaluation, or it is one of other weights than the run has now.
            Where the weights have been removed, the evaluation is taken as it is.
    """
    folder = run / "evaluation" / split
    if not all((folder / name).exists() for name in ("metrics.json", SUMMARIES)):
        raise CheckpointError(
            f"{run}: not evaluated on the {split} images yet. Run: {_command(run, split)}"
        )
    way_out = f"Evaluate again: {_command(run, split)}"
    about, values = read_metrics(folder / "metrics.json", way_out=way_out)
    summaries, groups = load_summaries(folder / SUMMARIES, way_out=way_out)
    curve, reliability = load_curves(folder / SUMMARIES, way_out=way_out)
    if (run / BEST).is_file() and about.get("weights_sha256") != weights_hash(run):
        raise CheckpointError(
            f"{folder}: belongs to other weights than those now in {run}. Evaluate it again: "
            f"{_command(run, split)}"
        )
    return Evaluated(run, about, values, summaries, groups, curve, reliability)


def _command(run: Path, split: str) -> str:
    """The command whose evaluation is read: `split` may also name a folder of a benchmark."""
    match split:
        case "test":
            return f"segconf evaluate {run}"
        case "val":
            return f"segconf evaluate {run} --split val"
        case _:
            return f"segconf evaluate {run} --out {run / 'evaluation' / split}"


def _check_same_images(runs: Sequence[Evaluated]) -> None:
    for run in runs[1:]:
        if list(run.summaries) != list(runs[0].summaries):
            raise ConfigError(
                f"{run.path} and {runs[0].path} were evaluated on different images "
                f"({len(run.summaries)} and {len(runs[0].summaries)}). Evaluate them on the same."
            )
        if list(run.groups) != list(runs[0].groups):
            raise ConfigError(
                f"{run.path} and {runs[0].path} were evaluated with different groups of the same "
                "images. Evaluate both again."
            )
        if run.about["grid"] != runs[0].about["grid"]:
            raise ConfigError(
                f"{run.path} was evaluated on the grid {run.about['grid']}, {runs[0].path} on "
                f"{runs[0].about['grid']}. Evaluate both on the same grid."
            )


def _baseline(groups: Mapping[str, Sequence[Evaluated]], asked: str | None) -> str:
    wanted = asked or "softmax"
    for name, members in groups.items():
        if wanted in (name, members[0].about["method"]):
            return name
    if asked is not None:
        raise ConfigError(f"baseline = {asked}: no such method. There are {', '.join(groups)}.")
    return next(iter(groups))


def _row(name: str, members: Sequence[Evaluated], baseline: Sequence[Evaluated]) -> Row:
    columns = [m for m in members[0].metrics if all(m in run.metrics for run in members)]
    values = {m: statistics.fmean(run.metrics[m] for run in members) for m in columns}
    spread = {}
    if len(members) > 1:
        spread = {m: statistics.stdev(run.metrics[m] for run in members) for m in columns}
    difference: dict[str, tuple[float, float]] = {}
    if members is not baseline:
        difference = bootstrap_differences(
            [list(run.summaries.values()) for run in members],
            [list(run.summaries.values()) for run in baseline],
            torch.Generator().manual_seed(0),
            groups=members[0].groups,
        )
    return Row(name, tuple(members), values, spread, difference)


def _published(method: str, labels: int) -> Row:
    numbers = dict(zip(PUBLISHED_METRICS, PUBLISHED[labels][method], strict=True))
    values = {metric: value / METRICS[metric].scale for metric, value in numbers.items()}
    return Row(f"{method} ({labels} labels, published)", (), values, {}, {})
