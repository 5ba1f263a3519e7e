"""`segconf train`: a run from a data set and a configuration."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import messages, results
from segconf_cli.options import ConfigFile, DataFolder, MethodName, Settings
from segconf_cli.outcome import next_step, record

if TYPE_CHECKING:
    from segconf.config.schema import ExperimentConfig
    from segconf.runs.run_folder import RunFolder
    from segconf.training.train import TrainingResult


def train(
    dataset: Annotated[
        str | None,
        typer.Argument(
            help="isic, demo, cifar10, cifar100, a folder with masks or labels, or a table.",
            show_default=False,
        ),
    ] = None,
    labeled: Annotated[
        int | None,
        typer.Option(
            help="Training masks to use: images, or groups where these hold several.",
            show_default="all",
            rich_help_panel="Labels",
        ),
    ] = None,
    labeled_list: Annotated[
        Path | None,
        typer.Option(
            help="File with the ids to use: .txt, .csv, .json or .npy.", rich_help_panel="Labels"
        ),
    ] = None,
    labels_from_query: Annotated[
        Path | None,
        typer.Option(
            metavar="LIST",
            help="List of `segconf query`: its images and those that run had labeled.",
            show_default="none",
            rich_help_panel="Labels",
        ),
    ] = None,
    corrections: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="MAPS",
            help="Reviewed prediction folder: accepted and corrected masks or labels; repeatable.",
            show_default="none",
            rich_help_panel="Labels",
        ),
    ] = None,
    method: Annotated[
        MethodName | None,
        typer.Option(
            help="How confidence is trained.",
            show_default="consistency",
            rich_help_panel="Training",
        ),
    ] = None,
    data: DataFolder = None,
    config: ConfigFile = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run.", show_default="runs/NAME", rich_help_panel="Data and results"
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes over the data.", show_default="200", rich_help_panel="Training"),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Decides everything random.", show_default="0", rich_help_panel="Training"
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="auto, cpu, cuda, cuda:N or mps.", show_default="auto", rich_help_panel="Training"
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Run folder to continue after its last finished epoch.",
            rich_help_panel="Data and results",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="End with `segconf calibrate` at its default targets.",
            rich_help_panel="Training",
        ),
    ] = True,
) -> None:
    """Train a network for masks or labels with their confidence, and calibrate it.

    Example: segconf train isic --labeled 250
    """
    from segconf.config.loading import load_config
    from segconf.errors import ConfigError
    from segconf.runs.run_folder import new_run_path

    if resume is not None:
        if out is not None:
            raise ConfigError("--out: --resume writes into the run it continues. Leave out --out.")
        known = _origin(resume)
        dataset, data, config = dataset or known[0], data or known[1], config or known[2]
    elif dataset is None:
        raise ConfigError(
            "DATASET is missing. Give isic, demo, cifar10, cifar100, a folder with masks or "
            "labels, or a table."
        )
    resolved = load_config(
        config,
        overrides=settings or [],
        flags={
            "data.labeled": labeled,
            "data.labeled_list": str(labeled_list) if labeled_list else None,
            "data.labels_from_query": str(labels_from_query) if labels_from_query else None,
            "data.corrections": [str(maps) for maps in corrections] if corrections else None,
            "training.method": method.value if method else None,
            "training.epochs": epochs,
            "training.seed": seed,
            "training.device": device,
        },
    )
    folder = resume or out or new_run_path(Path("runs"), resolved, dataset)
    job = _Job(dataset, data, folder, resume=resume is not None, calibrate=calibrate)
    _summarize(_train(resolved, job), resolved)


@dataclass(frozen=True)
class _Job:
    """What is trained on, and where."""

    dataset: str
    data: Path | None
    folder: Path
    resume: bool
    calibrate: bool


def _origin(resume: Path) -> tuple[str, Path | None, Path]:
    """Data set, its folder and the configuration file of a run."""
    from segconf.runs.run_folder import RunFolder

    run = RunFolder(resume)
    run.config()  # if it cannot be read, the message names the version that wrote it
    where = run.data().data
    return run.data().dataset, None if where is None else Path(where), run.config_file


def _train(config: ExperimentConfig, job: _Job) -> TrainingResult:
    """Train with a live view; the curves are drawn however it ends."""
    from segconf.runs.run_folder import RunFolder
    from segconf.training.train import train as run
    from segconf_cli.live import live_view

    logging.getLogger("segconf").addHandler(_handler())
    try:
        with live_view() as listener:
            return run(
                config,
                dataset=job.dataset,
                data=job.data,
                folder=job.folder,
                resume=job.resume,
                calibrate=job.calibrate,
                listener=listener,
            )
    except KeyboardInterrupt:
        if listener.folders:
            command = f"segconf train --resume {shlex.quote(str(job.folder))}"
            messages().print(f"continue with: {command}", highlight=False)
        raise
    finally:
        for run_folder in listener.folders:
            _draw_curves(RunFolder(run_folder))


def _draw_curves(run: RunFolder) -> None:
    """Leave `training.png` behind, also when the run was interrupted."""
    from segconf.plots.training_curves import training_curves

    if run.epochs_file.is_file():
        training_curves(run.epochs_file, run.path / "training.png")


def _handler() -> logging.Handler:
    from rich.logging import RichHandler

    logging.getLogger("segconf").setLevel(logging.INFO)
    return RichHandler(console=messages(), show_time=False, show_path=False, show_level=False)


def _summarize(result: TrainingResult, config: ExperimentConfig) -> None:
    if result.members:
        results().print(f"Finished {len(result.members)} members of {config.training.method}:")
    for number, run in enumerate(result.members or (result,)):
        name = f"member {number + 1}" if result.members else config.training.method
        results().print(_best_epoch(run, name, config.training.patience), highlight=False)
    if result.snapshot_files:
        size = sum(file.stat().st_size for file in result.snapshot_files)
        results().print(
            f"Kept {len(result.snapshot_files)} snapshots, {size / 1e6:,.1f} MB.", highlight=False
        )
    results().print(f"Run folder: {result.folder}", highlight=False)
    record(
        run=result.folder,
        method=config.training.method,
        networks=[_facts(run) for run in result.members or (result,)],
    )
    next_step(f"segconf evaluate {shlex.quote(str(result.folder))}")


def _facts(run: TrainingResult) -> dict[str, object]:
    """Epochs of a network, and its validation scores at the best one."""
    best = None if run.best_epoch is None else run.summaries[run.best_epoch]
    return {
        "folder": run.folder,
        "epochs": len(run.summaries),
        "best_epoch": None if best is None else best.epoch + 1,
        "validation": None if best is None else best.selected,
    }


def _best_epoch(run: TrainingResult, name: str, patience: int | None) -> str:
    from segconf.metrics.definitions import METRICS
    from segconf.runs.epochs import has_converged

    epochs = f"Finished {len(run.summaries)} epochs of {name}"
    scores = None if run.best_epoch is None else run.summaries[run.best_epoch].selected
    if run.best_epoch is None or scores is None:
        return f"{epochs}."
    quality, value = scores.quality
    title = METRICS[quality].title
    if has_converged(run.summaries[-1].stalled, patience):
        epochs += f", converged: {patience} validations without a better {title} or AURC"
    return (
        f"{epochs}; best epoch {run.best_epoch + 1}: validation {title} {value:.3f}, "
        f"AURC {1e3 * scores.aurc:.2f} (x 10^3), ECE {1e2 * scores.ece:.2f} (x 10^2)."
    )
