"""`segconf data`: download, describe and verify a data set."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counting, messages, results
from segconf_cli.options import ConfigFile, DatasetName, Settings
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from segconf.data.archives import Archive
    from segconf.data.download import DownloadPlan, DownloadProgress
    from segconf.data.inspection import DataReport, PartReport

MANY_SIZES = 3
MANY_CLASSES = 10


def data(
    dataset: DatasetName,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the isic archives (default: SEGCONF_DATA) or demo images."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Decode every image and mask completely.")
    ] = False,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the official archives first.")
    ] = False,
    keep_archives: Annotated[
        bool, typer.Option("--keep-archives", help="Keep the archives after unpacking.")
    ] = False,
    classes: Annotated[
        int | None, typer.Option(min=2, max=255, help="Classes in the masks.", show_default="2")
    ] = None,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Download a data set, describe it, and verify its files.

    Files are verified as the experiment of --config or --set reads them: channels
    (model.channels), classes, and 255 in masks (data.ignore_255).

    Example: segconf data isic --data isic2017 --verify
    """
    from segconf.config.loading import load_config
    from segconf.data.cases import BrokenDataError
    from segconf.data.datasets.dataset import (
        FindOptions,
        dataset_folder,
        datasets,
        find_cases,
        is_named,
    )
    from segconf.data.inspection import describe
    from segconf.data.preprocessing import Preprocessing
    from segconf.errors import ConfigError

    if keep_archives and not download:
        raise ConfigError(
            "--keep-archives: is about the download. Add --download, or leave it out."
        )
    experiment = load_config(config, overrides=settings or [], flags={"model.classes": classes})
    folder = dataset_folder(dataset, data)
    if download:
        archives = datasets.get(dataset).archives if is_named(dataset) else ()
        if not archives:
            raise ConfigError(f"--download: {dataset} cannot be downloaded.")
        _download(folder, archives, keep_archives=keep_archives)
    prepare(dataset, data)
    found = find_cases(dataset, data, options=FindOptions.of(experiment.data))
    reading = Preprocessing.of(experiment) if verify else None
    with counting() as progress:
        report = describe(found, verify=reading, on_progress=progress)
    _show(report, verified=verify)
    record(
        folder=report.root,
        parts=report.parts,
        notes=report.notes,
        problems=[str(problem) for problem in report.problems],
    )
    if report.problems:
        raise BrokenDataError(report.problems, report.root)


def prepare(dataset: str, data: Path | None) -> None:
    """Let a data set make its images where they are not there yet."""
    from segconf.data.datasets.dataset import check_one_folder, prepare_dataset

    check_one_folder(dataset, data)
    with counting() as progress:
        prepare_dataset(
            dataset, data, lambda done, total: progress(f"{dataset} images", done, total)
        )


def _download(folder: Path, archives: Sequence[Archive], *, keep_archives: bool) -> None:
    from segconf.data.download import download_archives

    with _transferring() as progress:
        download_archives(
            folder,
            archives=archives,
            keep_archives=keep_archives,
            on_plan=_announce,
            on_progress=progress,
        )


def _announce(plan: DownloadPlan) -> None:
    messages().print(str(plan), highlight=False)


@contextmanager
def _transferring() -> Iterator[Callable[[DownloadProgress], None]]:
    """A bar per archive and stage, in bytes."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    tasks: dict[tuple[str, str], TaskID] = {}
    with Progress(*columns, console=messages()) as progress:

        def report(state: DownloadProgress) -> None:
            key = (state.archive, state.stage)
            if key not in tasks:
                tasks[key] = progress.add_task(f"{state.stage} {state.archive}", total=state.total)
            progress.update(tasks[key], completed=state.done, total=state.total)

        yield report


def _show(report: DataReport, *, verified: bool) -> None:
    from rich.table import Table

    table = Table(title=str(report.root), title_justify="left")
    truth = "labels" if report.class_names else "masks"
    for column in ("part", "images", truth, "size (height x width)"):
        table.add_column(column, justify="left" if column in {"part"} else "right")
    for part in report.parts:
        table.add_row(part.name, str(part.images), str(part.masks), _sizes(part))
    results().print(table)
    if report.class_names:
        shown = ", ".join(report.class_names[:MANY_CLASSES])
        more = ", ..." if len(report.class_names) > MANY_CLASSES else ""
        results().print(f"{len(report.class_names)} classes: {shown}{more}", highlight=False)
    for note in report.notes:
        messages().print(f"note: {note}", highlight=False)
    if not report.problems:
        checked = "every file was decoded" if verified else "--verify decodes every file"
        results().print(f"No problem found ({checked}).", highlight=False)


def _sizes(part: PartReport) -> str:
    names = [f"{height} x {width}" for height, width in part.sizes]
    if len(names) > MANY_SIZES:
        return f"{names[0]} to {names[-1]} ({len(names)} sizes)"
    return ", ".join(names)
