"""Runs side by side: the table of the paper, and differences that are paired by image."""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from segconf.errors import CheckpointError, ConfigError
from segconf.evaluation.report import SUMMARIES, load_curves, load_summaries
from segconf.evaluation.tables import (
    EXPONENTS,
    HIGHER_IS_BETTER,
    PAPER_COLUMNS,
    PUBLISHED,
    TITLES,
    heading,
    scaled,
)
from segconf.files import write_text
from segconf.metrics import (
    ImageSummary,
    ReliabilityCurve,
    RiskCoverageCurve,
    bootstrap_differences,
)
from segconf.plots import comparison_plot


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
        return f"{self.about['method']} ({self.about['labeled']} labels)"


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
    """Rows, the best value of each column, and which row the differences refer to."""

    rows: tuple[Row, ...]
    baseline: str
    split: str

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
    return Row(name, tuple(members), values, spread, difference)


def _published(method: str, labels: int) -> Row:
    numbers = dict(zip(PAPER_COLUMNS, PUBLISHED[labels][method], strict=True))
    values = {metric: value / 10 ** EXPONENTS[metric] for metric, value in numbers.items()}
    return Row(f"{method} ({labels} labels, published)", (), values, {}, {})


def cell(row: Row, metric: str) -> str:
    """Mean and, over several seeds, standard deviation."""
    text = scaled(row.values[metric], metric)
    return f"{text} ± {scaled(row.spread[metric], metric)}" if row.spread else text


def is_best(comparison: Comparison, row: Row, metric: str) -> bool:
    """Whether a cell shows the best of our values, as far as the table's digits go."""
    if row.is_published:
        return False
    return scaled(row.values[metric], metric) == scaled(comparison.best(metric), metric)


def difference_cell(row: Row, metric: str) -> str:
    """Interval of the difference to the baseline."""
    if metric not in row.difference:
        return ""
    low, high = (scaled(value, metric) for value in row.difference[metric])
    return f"{low} to {high}"


def as_markdown(comparison: Comparison) -> str:
    """The table, and below it the differences."""
    heads = [heading(metric) for metric in PAPER_COLUMNS]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for row in comparison.rows:
        cells = [
            f"**{cell(row, m)}**" if is_best(comparison, row, m) else cell(row, m)
            for m in PAPER_COLUMNS
        ]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    compared = [row for row in comparison.rows if row.difference]
    if compared:
        lines += ["", f"Difference to {comparison.baseline}, 95% interval over images:", ""]
        lines += ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
        lines += [
            f"| {row.name} | " + " | ".join(difference_cell(row, m) for m in PAPER_COLUMNS) + " |"
            for row in compared
        ]
    return "\n".join(lines) + "\n"


def as_csv(comparison: Comparison) -> str:
    """Raw values: mean, standard deviation over seeds, interval of the difference."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    kinds = ("", "_std", "_difference_low", "_difference_high")
    writer.writerow(["row", "runs", *(f"{m}{kind}" for m in PAPER_COLUMNS for kind in kinds)])
    for row in comparison.rows:
        numbers: list[object] = []
        for m in PAPER_COLUMNS:
            numbers += [row.values[m], row.spread.get(m, ""), *row.difference.get(m, ("", ""))]
        writer.writerow([row.name, len(row.runs), *numbers])
    return text.getvalue()


def as_latex(comparison: Comparison) -> str:
    """A tabular in the layout of the paper."""
    heads = " & ".join(_latex_heading(metric) for metric in PAPER_COLUMNS)
    lines = [r"\begin{tabular}{l" + "r" * len(PAPER_COLUMNS) + "}", rf" & {heads} \\", r"\hline"]
    for row in comparison.rows:
        cells = []
        for m in PAPER_COLUMNS:
            text = cell(row, m).replace("±", r"\pm")
            cells.append(rf"$\mathbf{{{text}}}$" if is_best(comparison, row, m) else f"${text}$")
        lines.append(rf"{row.name} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write the table as Markdown, CSV and LaTeX, and both curves of all methods in one plot."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "table.md", as_markdown(comparison))
    write_text(folder / "table.csv", as_csv(comparison))
    write_text(folder / "table.tex", as_latex(comparison))
    ours = [row for row in comparison.rows if row.runs]
    comparison_plot(
        {row.name: _mean_curve(row.runs) for row in ours},
        {row.name: [run.reliability for run in row.runs] for row in ours},
        folder / "curves.png",
    )


def _mean_curve(runs: Sequence[Evaluated]) -> RiskCoverageCurve:
    """Curve of a method: risks averaged over its seeds."""
    curves = [run.curve for run in runs]
    return replace(
        curves[0],
        risk=np.mean([curve.risk for curve in curves], axis=0),
        optimal_risk=np.mean([curve.optimal_risk for curve in curves], axis=0),
        random_risk=statistics.fmean(curve.random_risk for curve in curves),
        aurc=statistics.fmean(curve.aurc for curve in curves),
    )


def _latex_heading(metric: str) -> str:
    exponent = EXPONENTS[metric]
    scale = rf" $\times 10^{exponent}$" if exponent else ""
    return TITLES[metric] + scale
