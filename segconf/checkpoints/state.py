"""The state of a run between two epochs, written so that a crash cannot damage it; the EMA."""

import logging
import pickle
import zipfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from segconf.errors import CheckpointError, TrainingError
from segconf.files import check_regular, replacing
from segconf.history.predictions import PredictionHistory
from segconf.processes import ProcessGroup
from segconf.runs.epochs import EpochSummary, as_plain, from_plain
from segconf.runs.run_folder import RunFolder

WARM_UP_STEPS = 10


def build_ema(model: nn.Module, decay: float) -> AveragedModel:
    """A copy of the model whose weights and BatchNorm statistics follow it slowly.

    After n steps the decay is `min(decay, (1 + n) / (10 + n))`, so that the random start is soon
    forgotten. Running means and variances are averaged like weights; counters are copied.
    """
    ema = AveragedModel(model, avg_fn=partial(_average, decay=decay), use_buffers=True)
    ema.module.eval().requires_grad_(requires_grad=False)
    # The present weights are the first ones: a count of 0 would replace them at the first step.
    ema.n_averaged.fill_(1)
    return ema


def _average(own: Tensor, new: Tensor, averaged: Tensor | int, *, decay: float) -> Tensor:
    if not own.is_floating_point():
        return new
    steps = int(averaged) - 1
    return own.lerp(new, 1 - min(decay, (1 + steps) / (WARM_UP_STEPS + steps)))


UNREADABLE = (
    *(OSError, RuntimeError, EOFError, LookupError, ValueError, TypeError, AttributeError),
    *(pickle.PickleError, zipfile.BadZipFile, NotImplementedError),
)
"""What reading a damaged checkpoint can end in."""


logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TrainingState:
    """Everything that the next epoch depends on."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    generator: torch.Generator
    ema: AveragedModel | None = None
    history: PredictionHistory | None = None
    summaries: list[EpochSummary] = field(default_factory=list)
    saved: int = 0
    """Finished epochs in the last checkpoint."""

    @property
    def epoch(self) -> int:
        """Epochs that are finished, which is also the number of the next one."""
        return len(self.summaries)

    @property
    def best_epoch(self) -> int | None:
        """Epoch with the best validation mIoU or accuracy so far; the earliest of equals."""
        scored = {
            summary.epoch: summary.selected.quality[1]
            for summary in self.summaries
            if summary.selected is not None
        }
        return max(scored, key=lambda epoch: scored[epoch]) if scored else None


def save_state(state: TrainingState, folder: RunFolder, group: ProcessGroup) -> None:
    """Write the state after an epoch; the one before is kept.

    The history goes first: a checkpoint never refers to a history that is not on the disk. Every
    process writes the history of its own images; the first one writes the rest.
    """
    checksum = None
    if state.history is not None:
        checksum = state.history.commit(history_folder(folder, group), epoch=state.epoch)
    checksums = group.collect(checksum)
    rng = group.collect(_random_state())
    if not group.is_first:
        return
    content = {
        "model": state.model.state_dict(),
        "optimizer": state.optimizer.state_dict(),
        "scaler": state.scaler.state_dict(),
        "pairs": state.generator.get_state(),
        "rng": rng,
        "ema": state.ema.state_dict() if state.ema is not None else None,
        "history": checksums,
        "summaries": [as_plain(summary) for summary in state.summaries],
    }
    with replacing(folder.state_file) as temporary:
        try:
            torch.save(content, temporary)
        except RuntimeError as error:  # how PyTorch says that the disk is full
            raise OSError(
                f"{folder.state_file.name}: {str(error).partition(chr(10))[0]}"
            ) from error
        if folder.state_file.exists():
            folder.state_file.replace(folder.previous_state_file)


def restore_state(
    state: TrainingState, folder: RunFolder, group: ProcessGroup, *, epochs: int
) -> None:
    """Continue from the newest checkpoint that is whole on every process.

    A run that was stopped before its first checkpoint starts again. Anything but continuing from
    the last checkpoint is announced in the log.

    Raises:
        TrainingError: when no checkpoint of the run can be used.
    """
    files = (folder.state_file, folder.previous_state_file)
    if not folder.has_checkpoint():
        logger.warning("%s: no checkpoint yet, starting with the first epoch", folder.path)
        return
    problems: list[str] = []
    for file in files:
        own_problem = _problem_of(file, state, folder, group, epochs)
        found = [problem for problem in group.collect(own_problem) if problem is not None]
        if found:
            problems.append(found[0])
            continue
        if problems:
            logger.warning(
                "%s; continuing from %s after epoch %d", problems[0], file.name, state.epoch
            )
            # The next checkpoint must not push the good one out and keep the bad one.
            group.on_first(partial(file.replace, folder.state_file))
        return
    raise TrainingError(
        f"{folder.path}: no checkpoint to continue from ({'; '.join(problems)}). Start a new run."
    )


def _problem_of(
    file: Path, state: TrainingState, folder: RunFolder, group: ProcessGroup, epochs: int
) -> str | None:
    """Restore the state from a file; why it could not be done, if so."""
    try:
        _restore_from(_read(file), state, folder, group, epochs)
    except FileNotFoundError as error:
        return f"{error.filename or file}: missing"
    except pickle.PickleError:
        # PyTorch's own words advise to switch its protection off.
        return f"{file}: refused (damaged, or it holds more than the numbers of a training)"
    except UNREADABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        return f"{file}: cannot be used ({reason})"
    return None


def _read(file: Path) -> dict[str, Any]:
    check_regular(file)
    # PyTorch does not look at the checksums that are in its files.
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise ValueError(f"damaged at {damaged}")
    content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return content


def _restore_from(
    content: dict[str, Any],
    state: TrainingState,
    folder: RunFolder,
    group: ProcessGroup,
    epochs: int,
) -> None:
    summaries = [from_plain(values) for values in content["summaries"]]
    checksums = content["history"]
    if len(checksums) != group.world:
        raise TrainingError(
            f"{folder.path}: was trained by {len(checksums)} processes, now there are "
            f"{group.world}. Every image belongs to one process: continue with the same number."
        )
    if state.history is not None:
        state.history = type(state.history).restore(
            history_folder(folder, group),
            epoch=len(summaries),
            checksum=checksums[group.rank],
            epochs=epochs,
            scratch=state.history.scratch,
        )
    state.model.load_state_dict(content["model"])
    state.optimizer.load_state_dict(content["optimizer"])
    state.scaler.load_state_dict(content["scaler"])
    state.generator.set_state(content["pairs"])
    _set_random_state(content["rng"][group.rank])
    if state.ema is not None:
        state.ema.load_state_dict(content["ema"])
    state.summaries = summaries
    state.saved = state.epoch


def _random_state() -> list[torch.Tensor]:
    """State of the global generators: that of the CPU, then those of the CUDA devices."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *cuda]


def _set_random_state(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if torch.cuda.is_available() and len(states) == 1 + torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states[1:])


def history_folder(folder: RunFolder, group: ProcessGroup) -> Path:
    """Where a process keeps its history; alone, directly in the run's history folder."""
    return folder.history if group.world == 1 else folder.history / f"rank{group.rank}"


def last_weights(folder: RunFolder) -> dict[str, Tensor]:
    """Weights after the last epoch of a run, averaged where it averages them.

    Raises:
        CheckpointError: there is no readable checkpoint.
    """
    try:
        content = _read(folder.state_file)
        averaged = content["ema"]
        if averaged is None:
            weights: dict[str, Tensor] = content["model"]
            return weights
        start = "module."
        return {n.removeprefix(start): w for n, w in averaged.items() if n.startswith(start)}
    except UNREADABLE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise CheckpointError(
            f"{folder.state_file}: the weights of the last epoch cannot be read ({reason}). "
            "Evaluate the best weights instead."
        ) from error
