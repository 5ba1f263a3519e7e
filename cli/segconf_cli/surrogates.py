"""`segconf surrogates`: how well consistency and others rank pixels along a training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counting, messages, results
from segconf_cli.options import Device, RunDataFolder
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from segconf.comparison.surrogates import RunSurrogates

_NAMES = 3
"""Columns of the table of gaps before those of its metrics."""
_GAPS = ("softmax", "consistency", "gap")


def surrogates(
    runs: Annotated[list[Path], typer.Argument(help="Run folders that kept snapshots.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for surrogates.csv, .md and .png.",
            show_default="evaluation/surrogates of the first run",
        ),
    ] = None,
    data: RunDataFolder = None,
    device: Device = "auto",
) -> None:
    """Rank training pixels by consistency, correctness and others, snapshot by snapshot.

    Example: segconf surrogates runs/isic-softmax-250-seed0 runs/isic-consistency-250-seed0
    """
    from segconf.comparison.surrogates import FILES, evaluate_surrogates, write_surrogates
    from segconf.runs.run_cases import check_report
    from segconf.runs.run_folder import RunFolder

    for run in runs:
        check_report(out, RunFolder(run), data=data, known=FILES)
    found = []
    for run in runs:
        with counting() as progress:
            found.append(evaluate_surrogates(run, data=data, device=device, on_progress=progress))
    folder = out or runs[0] / "evaluation/surrogates"
    write_surrogates(found, folder)
    _show(found)
    record(folder=folder, runs=[{"run": one.run, "scores": one.scores} for one in found])
    messages().print(f"Table, curves and numbers: {folder}", highlight=False)


def _show(found: Sequence[RunSurrogates]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from segconf.comparison.surrogates import GAP_METRICS, SURROGATES, gap_rows
    from segconf.metrics.definitions import heading, scaled

    for run in found:
        table = Table(box=SIMPLE_HEAD, title_justify="left")
        table.title = f"{run.run.name}: {run.images} training images, {heading('aurc')}"
        for name in ("epoch", *SURROGATES):
            table.add_column(name, justify="right", no_wrap=True)
        for scores in run.scores:
            values = [scaled(scores.aurc[name], "aurc") for name in SURROGATES]
            table.add_row(str(scores.epoch), *values)
        results().print(table)
    for number, metric in enumerate(GAP_METRICS):
        gaps = Table(box=SIMPLE_HEAD, title_justify="left")
        gaps.title = f"softmax against consistency, {heading(metric)}"
        for title in ("run", "method"):
            gaps.add_column(title, overflow="fold")
        for title in ("epoch", *_GAPS):
            gaps.add_column(title, justify="right", no_wrap=True)
        first = _NAMES + number * len(_GAPS)
        for row in gap_rows(found):
            gaps.add_row(*row[:_NAMES], *row[first : first + len(_GAPS)])
        results().print(gaps)
