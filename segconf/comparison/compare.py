"""Runs side by side: the table of the paper, and differences that are paired by image."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from segconf.comparison.costs import COSTS, mean_costs
from segconf.comparison.published import PAPER_COLUMNS, PUBLISHED
from segconf.errors import CheckpointError, ConfigError
from segconf.evaluation.report import SUMMARIES, load_curves, load_summaries
from segconf.metrics.bootstrap import bootstrap_differences
from segconf.metrics.curves import RiskCoverageCurve
from segconf.metrics.definitions import EXPONENTS, HIGHER_IS_BETTER
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.reliability import ReliabilityCurve


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluated run."""

    path: Path
    about: Mapping[str, Any]
    metrics: Mapping[str, float]  # raw, strict
    summaries: Mapping[str, ImageSummary]
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
    costs: Mapping[str, float]  # mean over the runs of what is known, see `COSTS`

    @property
    def is_published(self) -> bool:
        """Whether the numbers are those of the paper."""
        return not self.runs


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, the best value of each column, and which row the differences refer to."""

    rows: tuple[Row, ...]
    baseline: str
    split: str

    @property
    def costs(self) -> tuple[str, ...]:
        """Costs that are known of a row at least, in the order of their columns."""
        return tuple(name for name in COSTS if any(name in row.costs for row in self.rows))

    def best(self, metric: str) -> float:
        """The best of our rows."""
        values = [row.values[metric] for row in self.rows if not row.is_published]
        return max(values) if metric in HIGHER_IS_BETTER else min(values)


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
    rows = [_row(name, members, groups[chosen]) for name, members in groups.items()]
    if paper is not None:
        if paper not in PUBLISHED:
            known = ", ".join(map(str, PUBLISHED))
            raise ConfigError(f"--paper {paper}: the paper has numbers for {known} labels.")
        rows += [_published(name, paper) for name in PUBLISHED[paper]]
    return Comparison(tuple(rows), chosen, split)


def read_evaluation(run: Path, split: str) -> Evaluated:
    """What `evaluate` wrote for a run."""
    folder = run / "evaluation" / split
    try:
        about = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        summaries = load_summaries(folder / SUMMARIES)
        metrics = about["metrics"]["all"]["strict"]
        curve, reliability = load_curves(folder / SUMMARIES)
    except FileNotFoundError:
        option = "" if split == "test" else f" --split {split}"
        raise CheckpointError(
            f"{run}: not evaluated on the {split} images yet. Run: segconf evaluate {run}{option}"
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: not a readable evaluation ({error}).") from error
    values = {name: float("nan") if value is None else value for name, value in metrics.items()}
    return Evaluated(run, about, values, summaries, curve, reliability)


def _check_same_images(runs: Sequence[Evaluated]) -> None:
    for run in runs[1:]:
        if list(run.summaries) != list(runs[0].summaries):
            raise ConfigError(
                f"{run.path} and {runs[0].path} were evaluated on different images "
                f"({len(run.summaries)} and {len(runs[0].summaries)}). Evaluate them on the same."
            )
        if run.about["grid"] != runs[0].about["grid"]:
            raise ConfigError(
                f"{run.path} was evaluated on the grid {run.about['grid']}, {runs[0].path} on "
                f"{runs[0].about['grid']}. Evaluate both with --native, or on the same grid."
            )


def _baseline(groups: Mapping[str, Sequence[Evaluated]], asked: str | None) -> str:
    wanted = asked or "softmax"
    for name, members in groups.items():
        if wanted in (name, members[0].about["method"]):
            return name
    if asked is not None:
        raise ConfigError(f"--baseline {asked}: no such method. There are {', '.join(groups)}.")
    return next(iter(groups))


def _row(name: str, members: Sequence[Evaluated], baseline: Sequence[Evaluated]) -> Row:
    columns = members[0].metrics
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
        )
    costs = mean_costs([run.about for run in members])
    return Row(name, tuple(members), values, spread, difference, costs)


def _published(method: str, labels: int) -> Row:
    numbers = dict(zip(PAPER_COLUMNS, PUBLISHED[labels][method], strict=True))
    values = {metric: value / 10 ** EXPONENTS[metric] for metric, value in numbers.items()}
    return Row(f"{method} ({labels} labels, published)", (), values, {}, {}, {})
