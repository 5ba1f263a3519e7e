"""The training run, from the configuration to the run folder."""

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from segconf.checkpoints.state import TrainingState, history_folder, restore_state
from segconf.checkpoints.weight_files import (
    kept_snapshots,
    read_weights,
    remove_later,
    snapshot_bytes,
)
from segconf.checkpoints.weights import save_checkpoint, start_from
from segconf.config.schema import ExperimentConfig
from segconf.data.cache import PixelCache
from segconf.data.cases import CaseSet
from segconf.data.datasets.dataset import check_one_folder, dataset_folder, prepare_dataset
from segconf.data.preprocessing import Preprocessing
from segconf.data.splits import Split
from segconf.data.training_set import TrainingPixels, prepare_training
from segconf.devices import resolve_device
from segconf.errors import FileError, TrainingError
from segconf.locks import locked
from segconf.methods.method import method_of
from segconf.models.mlp import standardize
from segconf.outputs import check_output
from segconf.processes import ProcessGroup, joined
from segconf.runs.epochs import EpochSummary, open_events, write_epochs
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder, existing_parent
from segconf.runs.run_lock import TASK
from segconf.training.epoch import Trainer, TrainingListener
from segconf.training.finishing import finish_run
from segconf.training.initial_state import empty_history, initial_state, seed_everything
from segconf.training.labels import check_same_pixels, check_same_run, find_split
from segconf.training.task import settled

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


def train(  # noqa: PLR0913 - an entry function: every value that can be chosen
    config: ExperimentConfig,
    *,
    dataset: str,
    folder: Path | str,
    data: Path | str | None = None,
    resume: bool = False,
    calibrate: bool = True,
    listener: TrainingListener | None = None,
) -> TrainingResult:
    """Train the network of a configuration and leave a run folder that explains itself.

    Args:
        config: everything that decides the outcome.
        dataset: name of a data set, or a folder.
        folder: the run folder: new, or that of the run to resume.
        data: where a named data set lies, or, of a run to resume, its folder now.
        resume: continue the run in `folder` after its last finished epoch.
        calibrate: end with a calibration on the validation images, at the default targets.
        listener: is told about the progress.
    """
    method = method_of(config)
    method.check(config)
    device = resolve_device(config.training.device, config.training.precision)
    listener = listener or TrainingListener()
    data = None if data is None else Path(data)
    with joined(device) as group, ExitStack() as held:
        # Every process may make up a name for a new run: that of the first one counts.
        run = RunFolder(group.agree(Path(folder)))
        if not resume:
            check_one_folder(dataset, data)
            group.on_first(run.check_new)
        on_image = partial(listener.on_prepare, f"{dataset} images")
        group.on_first(lambda: prepare_dataset(dataset, data, on_image))
        found, split = find_split(config, dataset, data, group, run if resume else None)
        if not resume:
            check_output(run.path, inputs=found.folders())
        config = settled(config, found)
        if group.is_first:
            listener.on_split(split)
        used = RunData.of(dataset, data, split, found.class_names)
        job = _Job(run, found, split, used, device, group, listener)
        group.on_first(lambda: held.enter_context(locked(run.path, wait=False, task=TASK)))
        if resume:
            check_same_run(run, config, job.data)
        else:
            group.on_first(run.check_new)
        if members := method.member_configs(config):
            result = _train_members(config, members, job, resume=resume)
        else:
            result = _train_network(config, job, resume=resume)
        where = dataset_folder(dataset, data) if calibrate else None
        finish_run(config, run, split, group, listener, where)
        return result


@dataclass(frozen=True, slots=True)
class _Job:
    """Where a run goes, what it reads, and where and for whom it is done."""

    run: RunFolder
    found: CaseSet
    split: Split
    data: RunData
    device: torch.device
    group: ProcessGroup
    listener: TrainingListener
    runs: int = 1
    """Runs for which the disk must have space: this one and those that follow."""


def _train_network(config: ExperimentConfig, job: _Job, *, resume: bool) -> TrainingResult:
    run, group, split = job.run, job.group, job.split
    method = method_of(config)
    generator = seed_everything(config.training.seed, job.device)
    given = config.training.start_from
    is_new = not (resume and group.agree(run.has_checkpoint()))  # else its weights are read
    pretrained = is_new and given is None
    model = method.build(config.model, config.data.task, pretrained=pretrained)
    if is_new and given is not None:
        start_from(model, given)
    model = model.to(job.device).to(memory_format=torch.channels_last)
    pixels = _decoded(config, job)
    if pretrained:
        standardize(model, pixels.images)
    job = _with_hashes(job, pixels, resume=resume)
    pixels = pixels.restricted(
        group.own(len(split.labeled) + len(split.unlabeled)), use_unlabeled=method.uses_unlabeled
    )
    state = initial_state(config, group.synchronized(model), generator)
    if method.uses_history:
        state.history = empty_history(config, pixels, history_folder(run, group))
    if resume:
        group.on_first(lambda: run.extend(config))
        restore_state(state, run, group, epochs=config.training.epochs)
        group.on_first(lambda: remove_later(run.path, state.epoch))
    else:
        group.on_first(lambda: _create(config, job, state))
    return _run_epochs(state, Trainer(config, pixels, run, job.device, group, job.listener))


def _decoded(config: ExperimentConfig, job: _Job) -> TrainingPixels:
    """All images and masks; the first process decodes, the others find its arrays."""
    preprocessing = Preprocessing.of(config)
    cache = PixelCache(job.found.root, preprocessing, on_progress=job.listener.on_prepare)
    problems = job.found.problems
    job.group.on_first(lambda: prepare_training(cache, job.split, problems=problems))
    return prepare_training(cache, job.split, problems=problems)


def _with_hashes(job: _Job, pixels: TrainingPixels, *, resume: bool) -> _Job:
    """The job with the hashes of its pixels, which must be those of the run that is resumed."""
    if job.data.pixels:
        return job  # a member of an ensemble: they share their images
    hashes = job.group.agree(pixels.hashes() if job.group.is_first else {})
    if resume:
        check_same_pixels(job.run, hashes)
    return replace(job, data=replace(job.data, pixels=hashes))


def _train_members(
    config: ExperimentConfig,
    members: tuple[ExperimentConfig, ...],
    job: _Job,
    *,
    resume: bool,
) -> TrainingResult:
    """Train the networks of an ensemble one after another, on the same images."""
    run, group = job.run, job.group
    job = _with_hashes(job, _decoded(config, job), resume=resume)
    group.on_first(
        (lambda: _reopen(run, config))
        if resume
        else (lambda: run.create(config, job.data, job.device))
    )
    folders = run.members(len(members))
    results = []
    for number, (member, own) in enumerate(zip(folders, members, strict=True)):
        started = group.agree(member.has_begun())
        if group.is_first:
            job.listener.on_member(number, len(members))
        part = replace(job, run=member, runs=len(members) - number)
        results.append(_train_network(own, part, resume=started))
    group.on_first(lambda: _finish_members(run, folders[0], config))
    return TrainingResult(run.path, None, (), tuple(results))


def _reopen(run: RunFolder, config: ExperimentConfig) -> None:
    """Prepare for continuing; with more epochs than before the ensemble is no longer finished."""
    if config.training.epochs != run.config().training.epochs:
        run.best_file.unlink(missing_ok=True)
    run.extend(config)


def _finish_members(run: RunFolder, first: RunFolder, config: ExperimentConfig) -> None:
    """Let an ensemble be used: its file holds the weights of the first member."""
    if run.best_file.is_file():
        return
    try:
        save_checkpoint(run.best_file, read_weights(first.best_file), config)
    except FileError as error:
        raise TrainingError(
            f"{run.best_file}: cannot be written ({error.reason}). Free some space and "
            f"continue with: segconf train --resume {run.path}"
        ) from error


def _run_epochs(state: TrainingState, trainer: Trainer) -> TrainingResult:
    run, epochs = trainer.run, trainer.config.training.epochs
    is_first = trainer.group.is_first
    if is_first:
        trainer.listener.on_start(run.path, state.epoch, epochs)
        if state.summaries:
            # What a crash between the checkpoint and the table left out, or a fallback took back.
            write_epochs(run.epochs_file, state.summaries)
    with open_events(run.events, state.epoch, enabled=is_first) as write_event:
        while not trainer.is_finished(state):
            write_event(trainer.run_epoch(state))
    return TrainingResult(run.path, state.best_epoch, tuple(state.summaries))


def _create(config: ExperimentConfig, job: _Job, state: TrainingState) -> None:
    """Make the folder of a new run, if its checkpoints will fit on the disk."""
    run, training = job.run, config.training
    weights = sum(parameter.nbytes for parameter in state.model.parameters())
    # Two checkpoints and one being written, each weights, their average and two Adam moments; the
    # best weights and those being written; three generations of the history, a fourth, and the one
    # at work if that is on the disk too.
    needed = 3 * 4 * weights + 2 * weights + SPARE_BYTES
    histories = 5 if training.history_storage == "disk" else 4
    needed += histories * state.history.nbytes if state.history is not None else 0
    snapshots = len(method_of(config).snapshot_epochs(training))
    needed = (needed + snapshot_bytes(weights, snapshots, training.snapshot_precision)) * job.runs
    free = shutil.disk_usage(existing_parent(run.path)).free
    if free < needed:
        raise TrainingError(
            f"{run.path}: the run needs about {needed / 1e9:.1f} GB on the disk, "
            f"{free / 1e9:.1f} GB are free. Free some space, or choose another folder."
        )
    run.create(config, job.data, job.device)
