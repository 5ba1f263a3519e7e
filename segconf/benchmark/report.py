"""The tables that a benchmark ends in: one for each number of labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from segconf.benchmark.plan import CALIBRATED, SPLIT, PlannedRun
from segconf.evaluation.comparing import (
    Comparison,
    Evaluated,
    compare_evaluated,
    read_evaluation,
)
from segconf.evaluation.rendering import write_comparison
from segconf.evaluation.tables import PUBLISHED


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
                evaluated, split=SPLIT, paper=labels if paper and labels in PUBLISHED else None
            ),
        )
        for labels, evaluated in by_labels.items()
    )


def write_tables(tables: Sequence[BenchmarkTable], out: Path) -> list[Path]:
    """Write the files of each comparison to a folder of its own, and return the folders."""
    folders = []
    for table in tables:
        folders.append(out / "tables" / f"{table.labels}-labels")
        write_comparison(table.comparison, folders[-1])
    return folders


def _evaluations(run: PlannedRun) -> list[Evaluated]:
    plain = read_evaluation(run.folder, SPLIT)
    # A run that had its temperature before it was first evaluated has only that one result.
    if not run.calibrate or plain.about.get("temperature", 1) != 1:
        return [plain]
    return [plain, read_evaluation(run.folder, CALIBRATED)]
