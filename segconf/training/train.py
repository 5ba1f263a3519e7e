"""The training run, from the configuration to the run folder."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from segconf.checkpoints.snapshots import kept_snapshots, remove_later, snapshot_bytes
from segconf.checkpoints.state import TrainingState, history_folder, restore_state
from segconf.config.schema import ExperimentConfig
from segconf.data.cache import PixelCache
from segconf.data.cases import CaseSet, raise_problems
from segconf.data.datasets.dataset import HoldOut, find_cases
from segconf.data.preprocessing import Grid
from segconf.data.splits import Split
from segconf.data.training_set import TrainingPixels, prepare_training
from segconf.devices import resolve_device
from segconf.errors import DataError, TrainingError
from segconf.history.predictions import PredictionHistory
from segconf.models.unet import build_model
from segconf.processes import Ranks, joined
from segconf.runs.epochs import EpochSummary, write_epochs
from segconf.runs.resuming import check_same_run
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder, existing_parent
from segconf.training.ema import WeightAverage
from segconf.training.ensemble import finish_ensemble, member_config, open_ensemble
from segconf.training.epoch import Loop, TrainingListener
from segconf.training.events import open_events
from segconf.training.labels import label

SPARE_BYTES = 50_000_000


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """Where the run is and how it went."""

    folder: Path
    best_epoch: int | None
    summaries: tuple[EpochSummary, ...]
    members: tuple["TrainingResult", ...] = ()
    """Runs of the networks of an ensemble, which has no epochs of its own."""

    @property
    def snapshot_files(self) -> tuple[Path, ...]:
        """Snapshots that were kept along the training."""
        folders = [self.folder, *(member.folder for member in self.members)]
        return tuple(file for folder in folders for file in kept_snapshots(folder).values())


def train(
    config: ExperimentConfig,
    *,
    dataset: str,
    data: Path | None,
    folder: Path,
    resume: bool = False,
    listener: TrainingListener | None = None,
) -> TrainingResult:
    """Train the network of a configuration and leave a run folder that explains itself.

    Args:
        config: everything that decides the outcome.
        dataset: `isic`, `demo` or a folder.
        data: where a named data set lies.
        folder: the run folder: new, or that of the run to resume.
        resume: continue the run in `folder` after its last finished epoch.
        listener: is told about the progress.
    """
    device = resolve_device(config.training.device, config.training.precision)
    listener = listener or TrainingListener()
    with joined(device) as ranks:
        # Without --out every process makes up a name: that of the first one counts.
        run = RunFolder(ranks.agree(folder))
        found, split = _find(config, dataset, data, ranks, run if resume else None)
        job = _Job(run, found, split, RunData.of(dataset, data, split), device, ranks, listener)
        if resume:
            check_same_run(run, config, job.data)
        else:
            ranks.on_first(run.check_new)
        if config.training.method == "ensemble":
            return _train_members(config, job, resume=resume)
        return _train_run(config, job, resume=resume)


@dataclass(frozen=True, slots=True)
class _Job:
    """Where a run goes, what it reads, and where and for whom it is done."""

    run: RunFolder
    found: CaseSet
    split: Split
    data: RunData
    device: torch.device
    ranks: Ranks
    listener: TrainingListener
    runs: int = 1
    """Runs for which the disk must have space: this one and those that follow."""


def _train_run(config: ExperimentConfig, job: _Job, *, resume: bool) -> TrainingResult:
    run, ranks, split, problems = job.run, job.ranks, job.split, job.found.problems
    generator = seed_everything(config.training.seed, job.device)
    model = build_model(config.model, method=config.training.method)
    model = model.to(job.device).to(memory_format=torch.channels_last)
    cache = PixelCache(job.found.root, Grid.of(config), on_progress=job.listener.on_prepare)
    # The first rank decodes; the others find its arrays.
    ranks.on_first(lambda: prepare_training(cache, split, problems=problems))
    pixels = prepare_training(cache, split, problems=problems).restricted(
        ranks.own(len(split.labeled) + len(split.unlabeled)),
        use_unlabeled=config.training.uses_unlabeled,
    )
    state = _initial_state(config, ranks.synchronized(model), generator)
    state.history = _empty_history(config, pixels, history_folder(run, ranks))
    if resume:
        ranks.on_first(lambda: run.extend(config))
        restore_state(state, run, ranks, epochs=config.training.epochs)
        ranks.on_first(lambda: remove_later(run.path, state.epoch))
    else:
        ranks.on_first(lambda: _create(config, job, state))
    loop = Loop(config, pixels, run, job.device, ranks, job.listener)
    return _run_epochs(state, loop, split)


def _train_members(config: ExperimentConfig, job: _Job, *, resume: bool) -> TrainingResult:
    """Train the networks of an ensemble one after another, on the same images."""
    if resume:
        job.ranks.on_first(lambda: open_ensemble(job.run, config))
    else:
        job.ranks.on_first(lambda: job.run.create(config, job.data, job.device))
    results = []
    for number, member in enumerate(job.run.members(config.training.members)):
        started = job.ranks.agree(member.has_begun())
        if job.ranks.is_first:
            job.listener.on_member(number, config.training.members)
        own = replace(job, run=member, runs=config.training.members - number)
        results.append(_train_run(member_config(config, number), own, resume=started))
    job.ranks.on_first(lambda: finish_ensemble(job.run, config))
    return TrainingResult(job.run.path, None, (), tuple(results))


def _run_epochs(state: TrainingState, loop: Loop, split: Split) -> TrainingResult:
    epochs = loop.config.training.epochs
    if loop.ranks.is_first:
        loop.listener.on_start(loop.run.path, state.epoch, epochs)
        if state.summaries:
            # What a crash between the checkpoint and the table left out, or a fallback took back.
            write_epochs(loop.run.epochs_file, state.summaries)
    with open_events(loop.run.events, state.epoch, enabled=loop.ranks.is_first) as write_event:
        for _ in range(state.epoch, epochs):
            write_event(loop.run_epoch(state))
    loop.finish(state, split)
    return TrainingResult(loop.run.path, state.best_epoch, tuple(state.summaries))


def _find(
    config: ExperimentConfig,
    dataset: str,
    data: Path | None,
    ranks: Ranks,
    resumed: RunFolder | None,
) -> tuple[CaseSet, Split]:
    """Find and split the data; no picture is opened yet."""
    options = config.data
    shares = HoldOut(options.validation_share, options.test_share)
    found, split = label(find_cases(dataset, data, hold_out=shares), config, resumed)
    if not split.validation:
        raise_problems(found.problems, found.root)  # they may be why there is none
        raise DataError(
            f"{found.root}: no validation images with masks, but the best epoch is chosen on them. "
            "Add a val/ folder, or raise data.validation_share."
        )
    for count, name in ((len(split.labeled), "labeled"), (len(split.unlabeled), "unlabeled")):
        if 0 < count < ranks.world:
            raise DataError(
                f"{found.root}: {count} {name} images cannot feed {ranks.world} processes. "
                f"Use at most {count} processes."
            )
    return found, split


def _initial_state(
    config: ExperimentConfig, model: nn.Module, generator: torch.Generator
) -> TrainingState:
    training = config.training
    return TrainingState(
        model=model,
        optimizer=build_optimizer(model, training.learning_rate),
        scaler=torch.amp.GradScaler(enabled=training.precision == "float16"),
        generator=generator,
        average=WeightAverage(model, training.average_decay) if training.average_decay else None,
    )


def _empty_history(
    config: ExperimentConfig, pixels: TrainingPixels, folder: Path
) -> PredictionHistory | None:
    training = config.training
    if not training.uses_history:
        return None
    return PredictionHistory(
        len(pixels.rows),
        config.data.size,
        labeled=np.searchsorted(pixels.rows, pixels.labeled_rows).tolist(),
        epochs=training.epochs,
        scratch=folder if training.history_storage == "disk" else None,
    )


def build_optimizer(model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
    """Adam in its fused form, which takes a third of the time."""
    fused = next(model.parameters()).device.type in {"cpu", "cuda"}
    return torch.optim.Adam(model.parameters(), lr=learning_rate, fused=fused)


def _create(config: ExperimentConfig, job: _Job, state: TrainingState) -> None:
    """Make the folder of a new run, if its checkpoints will fit on the disk."""
    run = job.run
    weights = sum(parameter.nbytes for parameter in state.model.parameters())
    # Two checkpoints and one being written, each weights, their average and two Adam moments; the
    # best weights and those being written; three generations of the history, a fourth, and the one
    # at work if that is on the disk too.
    needed = 3 * 4 * weights + 2 * weights + SPARE_BYTES
    histories = 5 if config.training.history_storage == "disk" else 4
    needed += histories * state.history.nbytes if state.history is not None else 0
    needed = (needed + snapshot_bytes(weights, config.training)) * job.runs
    free = shutil.disk_usage(existing_parent(run.path)).free
    if free < needed:
        raise TrainingError(
            f"{run.path}: the run needs about {needed / 1e9:.1f} GB on the disk, "
            f"{free / 1e9:.1f} GB are free. Free some space, or choose another folder with --out."
        )
    run.create(config, job.data, job.device)


def seed_everything(seed: int, device: torch.device) -> torch.Generator:
    """Seed the global generators once, and make the one that draws ranking pairs."""
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)
