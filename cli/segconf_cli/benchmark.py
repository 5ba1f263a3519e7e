"""`segconf benchmark`: every method under one protocol, and the table of the paper."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from segconf_cli.compare import facts, show_comparison
from segconf_cli.data import prepare
from segconf_cli.display import messages, warn
from segconf_cli.options import ConfigFile, DataFolder, DatasetName, Settings
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from segconf.comparison.benchmark import BenchmarkRequest, BenchmarkTable, PlannedRun
    from segconf.comparison.launcher import Status

INCOMPLETE = 3


def benchmark(
    dataset: DatasetName,
    labeled: Annotated[
        str | None,
        typer.Option(
            help="Numbers of training masks or labels, such as 125,250,500.",
            show_default="all",
            rich_help_panel="Protocol",
        ),
    ] = None,
    labeled_lists: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the ids for each number: labeled_125.txt, ...",
            show_default="drawn by the seed",
            rich_help_panel="Protocol",
        ),
    ] = None,
    methods: Annotated[
        str,
        typer.Option(
            help="all, or names such as softmax,crl,consistency.", rich_help_panel="Protocol"
        ),
    ] = "all",
    seeds: Annotated[
        int, typer.Option(help="Runs of each method: seeds 0, 1, ...", rich_help_panel="Protocol")
    ] = 1,
    config: ConfigFile = None,
    protocol: Annotated[
        Path | None,
        typer.Option(
            help="Epochs and batches of each method.",
            show_default="the paper's",
            rich_help_panel="Protocol",
        ),
    ] = None,
    data: DataFolder = None,
    out: Annotated[
        Path,
        typer.Option(help="Folder of all runs and tables.", rich_help_panel="Data and results"),
    ] = Path("benchmark"),
    jobs: Annotated[
        int,
        typer.Option(
            help="Runs at once; they share the processors.", rich_help_panel="Data and results"
        ),
    ] = 1,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="Put the published numbers beside ours.", rich_help_panel="Table"
        ),
    ] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Add each method with temperature scaling.", rich_help_panel="Table"
        ),
    ] = False,
    settings: Settings = None,
) -> None:
    """Train and evaluate all methods under one protocol, and compare quality and cost.

    Finished runs are kept; the same command continues after an interruption.
    A protocol file holds settings by method (methods.NAME.settings) and by number of labels
    (methods.NAME.labels.N).

    Example: segconf benchmark isic --labeled 125,250 --seeds 3 --paper
    """
    from segconf.comparison.benchmark import (
        BenchmarkRequest,
        benchmark_cases,
        build_tables,
        check_folder,
        check_runs,
        plan_runs,
        write_tables,
    )
    from segconf.errors import ConfigError

    if jobs < 1:
        raise ConfigError(f"--jobs {jobs}: expected a number from 1.")

    request = BenchmarkRequest(
        dataset,
        _numbers(labeled),
        _names(methods),
        seeds,
        out,
        data=data,
        config=config,
        protocol=protocol,
        overrides=tuple(settings or ()),
        calibrate=calibrate,
        labeled_lists=labeled_lists,
    )
    prepare(dataset, data)
    found = benchmark_cases(request)
    runs = plan_runs(request, found)
    check_runs(runs, dataset)
    check_folder(out, found)
    failed = [status for status in _carry_out(runs, request, jobs) if status.state == "failed"]
    tables = build_tables(runs, paper=paper)
    for table, folder in zip(tables, write_tables(tables, out), strict=True):
        _show(table, folder, paper=paper)
    record(
        folder=out,
        tables=[{"labels": table.labels, **facts(table.comparison)} for table in tables],
        failed=[{"run": status.name, "reason": status.reason} for status in failed],
    )
    if failed:
        _show_failures(failed, len(runs))
        raise typer.Exit(INCOMPLETE)


def _carry_out(
    runs: Sequence[PlannedRun], request: BenchmarkRequest, jobs: int
) -> tuple[Status, ...]:
    """Do what is missing, and show it."""
    from segconf.comparison.launcher import Launcher, carry_out, command_launcher
    from segconf_cli.progress import benchmark_view

    launch = command_launcher([sys.executable, "-m", "segconf_cli"])
    try:
        with _terminable(), benchmark_view() as view:
            return carry_out(runs, request, Launcher(launch, min(jobs, len(runs))), view.show)
    except KeyboardInterrupt:
        messages().print("All runs have stopped and keep their checkpoints.")
        messages().print("Continue with the same command.")
        raise


def _numbers(text: str | None) -> tuple[int | None, ...]:
    from segconf.errors import ConfigError

    if text is None:
        return (None,)
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(f"--labeled {text}: expected numbers such as 125,250.")
    return tuple(map(int, parts))


def _names(text: str) -> tuple[str, ...]:
    from segconf.registry import METHODS

    return METHODS.names() if text == "all" else tuple(part.strip() for part in text.split(","))


@contextmanager
def _terminable() -> Iterator[None]:
    """Let a request to terminate do what Ctrl-C does: without it the runs would go on alone."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _show(table: BenchmarkTable, folder: Path, *, paper: bool) -> None:
    show_comparison(table.comparison)
    if paper and not any(row.is_published for row in table.comparison.rows):
        messages().print(f"The paper has no numbers for {table.labels} labels.", highlight=False)
    messages().print(f"Tables and curves: {folder}", highlight=False)


def _show_failures(failed: Sequence[Status], runs: int) -> None:
    lines = [f"{len(failed)} of {runs} runs failed:"]
    lines += [f"  {status.name}: {status.reason}" for status in failed]
    lines += ["The tables lack them. Fix the cause and run the same command again."]
    warn("\n".join(lines))
