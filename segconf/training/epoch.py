"""The epochs of a run: train, validate, write."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from segconf.checkpoints.state import TrainingState, save_state
from segconf.checkpoints.weight_files import snapshot_file, write_snapshot
from segconf.checkpoints.weights import save_checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.data.splits import Split
from segconf.data.training_set import (
    Batch,
    CaseDataset,
    Normalization,
    TrainingDataset,
    TrainingPixels,
    TrainingStep,
    build_loader,
    training_batches,
)
from segconf.errors import FileError, TrainingError
from segconf.files import described
from segconf.losses.ranking_terms import total_loss
from segconf.methods.method import EpochStart, LossContext, method_of
from segconf.models.encoders import encoder_normalization
from segconf.processes import ProcessGroup
from segconf.runs.epochs import EpochSummary, Scores, append_time, has_converged, write_epochs
from segconf.runs.run_cases import batch_size
from segconf.runs.run_folder import RunFolder
from segconf.training.convergence import judged
from segconf.training.optimizer import scheduled_rate
from segconf.training.step import StepOptions, TwoViews, ramped_weights, step_terms
from segconf.training.validation import labeled_logits, sweep, validate


class TrainingListener:
    """What a display may want to know; every method can be overridden, none has to be."""

    def on_prepare(self, label: str, done: int, total: int) -> None:
        """Called while images are decoded, and during the work after the last epoch."""

    def on_split(self, split: Split) -> None:
        """Called once it is known which images are labeled."""

    def on_member(self, number: int, members: int) -> None:
        """Called before the run of every network of an ensemble, numbered from 0."""

    def on_start(self, folder: Path, epoch: int, epochs: int) -> None:
        """Called before the first epoch of this process."""

    def on_step(self, step: int, steps: int, terms: Mapping[str, Tensor]) -> None:
        """Called after every step."""

    def on_epoch(self, summary: EpochSummary) -> None:
        """Called after every epoch, when its checkpoint, if it has one, is on the disk."""


class Trainer:
    """The fixed surroundings of the epochs of one run."""

    def __init__(
        self,
        config: ExperimentConfig,
        pixels: TrainingPixels,
        run: RunFolder,
        device: torch.device,
        group: ProcessGroup,
        listener: TrainingListener,
    ) -> None:
        """Plan the batches; nothing is trained yet."""
        self.config, self.pixels, self.run = config, pixels, run
        self.device, self.group, self.listener = device, group, listener
        self.method = method_of(config)
        self.has_labels = config.data.task == "classification"
        self.evaluation_batch = batch_size(config)
        mean, std = encoder_normalization(config.model.encoder, config.model.channels)
        self.normalization = Normalization(mean, std)
        workers = config.training.workers
        self.workers = (0 if device.type == "cpu" else 2) if workers is None else workers
        self.dataset = TrainingDataset(
            pixels,
            steps=self._steps(),
            batch_labeled=self._part(config.training.batch_labeled),
            augmentation=config.augmentation,
            normalization=self.normalization,
            seed=config.training.seed * group.world + group.rank,
        )

    def _part(self, batch: int) -> int:
        """Images of a batch that one process sees at once."""
        return math.ceil(batch / (self.group.world * self.config.training.accumulate))

    def _steps(self) -> int:
        """Passes of the network per epoch, the same on every process."""
        training, group = self.config.training, self.group
        labeled, unlabeled = len(self.pixels.labeled_rows), len(self.pixels.unlabeled_rows)
        counts = torch.tensor([labeled, unlabeled])
        total_labeled, total_unlabeled = (int(count) for count in group.total(counts))
        if total_unlabeled:
            return math.ceil(total_unlabeled / training.batch_unlabeled) * training.accumulate
        steps = math.ceil(total_labeled / training.batch_labeled) * training.accumulate
        return min(steps, total_labeled // group.world)

    def run_epoch(self, state: TrainingState) -> EpochSummary:
        """Train, validate, and write one epoch."""
        epoch, started = state.epoch, time.perf_counter()
        terms = self._train(state, epoch)
        trained = time.perf_counter()
        summary = self._validate(state, EpochSummary(epoch, len(terms), _means(terms)))
        state.summaries.append(judged(summary, state.summaries, self.config.training, self.method))
        try:
            self._write(state, epoch)
            if self.group.is_first:
                seconds = (trained - started, time.perf_counter() - trained)
                append_time(self.run.timing_file, epoch, *seconds)
        except (OSError, FileError) as error:
            reason = error.reason if isinstance(error, FileError) else described(error)
            raise TrainingError(cannot_write(self.run, reason, state)) from error
        if self.group.is_first:
            self.listener.on_epoch(state.summaries[-1])
        return state.summaries[-1]

    def _train(self, state: TrainingState, epoch: int) -> list[dict[str, Tensor]]:
        """One pass over the training images: forward, loss, backward, step."""
        options = StepOptions.of_epoch(self.config, self.method, epoch)
        self._sweep(state, epoch)
        prepared = self._prepare(state, epoch)
        views: nn.Module = TwoViews(state.model.train())
        if self.group.world > 1:
            # Some encoders carry layers that a UNet does not use.
            views = DistributedDataParallel(views, find_unused_parameters=True)
        self.dataset.start_epoch(epoch)
        loader = build_loader(self.dataset, workers=self.workers)
        loss = self.config.loss
        context = LossContext(
            loss, state.history, self.group, state.generator, self.device, prepared
        )
        weights = ramped_weights(self.method.weights(loss), self.config.training, epoch)
        found: list[dict[str, Tensor]] = []
        for number, step in enumerate(loader):
            self._set_learning_rate(state, epoch + number / len(self.dataset))
            terms = step_terms(views, step, self.method, options, context)
            total = total_loss(terms, weights)
            if not math.isfinite(total.item()):
                raise TrainingError(self._not_finite(number, step, state))
            self._update(state, total, number)
            found.append({name: term.detach() for name, term in terms.items()})
            if self.group.is_first:
                self.listener.on_step(len(found), len(self.dataset), found[-1])
        return found

    def _set_learning_rate(self, state: TrainingState, passed: float) -> None:
        """Follow the schedule; `passed` counts epochs, and a fraction of the present one."""
        training = self.config.training
        rate = scheduled_rate(training.learning_rate, training.schedule, passed / training.epochs)
        for group in state.optimizer.param_groups:
            group["lr"] = rate

    def _update(self, state: TrainingState, loss: Tensor, number: int) -> None:
        """Backward pass; a step of the optimizer when the batch is complete."""
        accumulate = self.config.training.accumulate
        # The processes average their gradients; the gradient of the whole batch is their sum.
        scale = self.group.world / accumulate
        state.scaler.scale(loss * scale).backward()  # type: ignore[no-untyped-call]
        if (number + 1) % accumulate and number + 1 < len(self.dataset):
            return
        state.scaler.step(state.optimizer)
        state.scaler.update()
        state.optimizer.zero_grad(set_to_none=True)
        if state.ema is not None:
            state.ema.update_parameters(state.model)

    def _prepare(self, state: TrainingState, epoch: int) -> Tensor | None:
        """What the method prepares for an epoch."""

        def labeled() -> Iterator[tuple[Tensor, Tensor]]:
            batches = training_batches(self.pixels, self.evaluation_batch, self.normalization)
            classes = self.config.model.classes
            return labeled_logits(state.model, batches, classes=classes, device=self.device)

        start = EpochStart(epoch, self.config, state.summaries, labeled, self.group)
        return self.method.prepare_epoch(start)

    def _sweep(self, state: TrainingState, epoch: int) -> None:
        training = self.config.training
        if training.history != "sweep" or epoch < training.history_start or state.history is None:
            return
        batches = training_batches(self.pixels, self.evaluation_batch, self.normalization)
        sweep(state.model, batches, state.history, epoch=epoch, device=self.device)

    def _validate(self, state: TrainingState, summary: EpochSummary) -> EpochSummary:
        training = self.config.training
        finished = summary.epoch + 1
        if finished % training.validate_every and finished < training.epochs:
            return summary
        own = self.group.own(len(self.pixels.validation_images))
        dataset = CaseDataset(
            self.pixels.validation_images[own],
            self.pixels.validation_masks[own],
            batch_size=self.evaluation_batch,
            normalization=self.normalization,
        )
        loader = build_loader(dataset, workers=0)
        return replace(
            summary,
            scores=self._scores(state.model, loader, state),
            ema_scores=None if state.ema is None else self._scores(state.ema.module, loader, state),
        )

    def _scores(self, model: nn.Module, loader: DataLoader[Batch], state: TrainingState) -> Scores:
        self.group.share_buffers(model)
        scores = validate(
            model,
            loader,
            classes=self.config.model.classes,
            labels=self.has_labels,
            device=self.device,
            group=self.group,
        )
        if scores is None:
            raise TrainingError(
                f"{self.run.path}: after epoch {state.epoch + 1} the network's output on the "
                f"validation images is not finite. {_last_good(self.run, state)} "
                "Try a smaller training.learning_rate."
            )
        return scores

    def _write(self, state: TrainingState, epoch: int) -> None:
        """Snapshot, best weights, state, and last the table: each file is complete or absent."""
        training = self.config.training
        kept = state.ema.module if state.ema is not None else state.model
        if self.group.is_first and epoch + 1 in self.method.snapshot_epochs(training):
            file = snapshot_file(self.run.path, epoch + 1)
            write_snapshot(file, kept.state_dict(), training.snapshot_precision)
        if state.best_epoch == epoch and self.group.is_first:
            save_checkpoint(self.run.best_file, kept.state_dict(), self.config)
        if state.epoch % training.checkpoint_every and not self.is_finished(state):
            return
        save_state(state, self.run, self.group)
        state.saved = state.epoch
        if self.group.is_first:
            write_epochs(self.run.epochs_file, state.summaries)

    def _not_finite(self, number: int, step: TrainingStep, state: TrainingState) -> str:
        cases = step.labeled.cases.tolist()
        if step.unlabeled is not None:
            cases += step.unlabeled.cases.tolist()
        rows = self.group.gather(torch.from_numpy(self.pixels.rows[cases]))
        ids = self.run.data().training_ids()
        names = ", ".join(ids[row] for row in sorted(set(rows.tolist())))
        return (
            f"{self.run.path}: the loss is not a finite number at epoch {state.epoch + 1}, "
            f"step {number + 1}, images {names}. {_last_good(self.run, state)} "
            "Try a smaller training.learning_rate, or look at these images."
        )

    def is_finished(self, state: TrainingState) -> bool:
        """Whether all epochs have passed, or the patience is at its end."""
        training = self.config.training
        stalled = state.summaries[-1].stalled if state.summaries else None
        return state.epoch >= training.epochs or has_converged(stalled, training.patience)


def cannot_write(run: RunFolder, reason: str, state: TrainingState) -> str:
    """The message for an epoch that does not fit on the disk."""
    return (
        f"{run.path}: epoch {state.epoch} cannot be written ({reason}). "
        f"{_last_good(run, state)} Free some space and continue with: segconf train --resume "
        f"{run.path}"
    )


def _last_good(run: RunFolder, state: TrainingState) -> str:
    if state.saved == 0:
        return "There is no checkpoint yet."
    return f"The last good checkpoint: {run.state_file}, after epoch {state.saved}."


def _means(terms: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    """Mean of each term over the steps of an epoch."""
    return {
        name: float(torch.stack([step[name] for step in terms]).double().mean())
        for name in terms[0]
    }
