"""The epochs of a run: train, validate, write."""

import copy
import csv
import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from segconf.checkpoints.snapshots import snapshot_epochs, snapshot_file, write_snapshot
from segconf.checkpoints.state import TrainingState, save_state
from segconf.checkpoints.weights import read_tensors, save_checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.data.splits import Split
from segconf.data.training_set import (
    Batch,
    CaseDataset,
    Normalization,
    TrainingDataset,
    TrainingPixels,
    build_loader,
    training_batches,
)
from segconf.errors import TrainingError
from segconf.losses.ranking_terms import LossTerms
from segconf.models.encoders import encoder_normalization
from segconf.ood.detector import save_features, stranger_grid
from segconf.ood.features import FeatureBank, described_cases, in_order, swept, watching
from segconf.processes import Ranks
from segconf.runs.epochs import EpochSummary, Scores, write_epochs
from segconf.runs.run_folder import RunFolder
from segconf.training.step import NotFiniteError, StepContext, StepOptions, TwoViews, train_epoch
from segconf.training.validation import sweep, validate

EVALUATION_BATCH = 16


class TrainingListener:
    """What a display may want to know; every method can be overridden, none has to be."""

    def on_prepare(self, label: str, done: int, total: int) -> None:
        """Called while images are decoded, and while their features are collected at the end."""

    def on_member(self, number: int, members: int) -> None:
        """Called before the run of every network of an ensemble, numbered from 0."""

    def on_start(self, folder: Path, epoch: int, epochs: int) -> None:
        """Called before the first epoch of this process."""

    def on_step(self, step: int, steps: int, terms: LossTerms) -> None:
        """Called after every step."""

    def on_epoch(self, summary: EpochSummary) -> None:
        """Called after every epoch, when its checkpoint, if it has one, is on the disk."""


class Loop:
    """The fixed surroundings of the epochs of one run."""

    def __init__(
        self,
        config: ExperimentConfig,
        pixels: TrainingPixels,
        run: RunFolder,
        device: torch.device,
        ranks: Ranks,
        listener: TrainingListener,
    ) -> None:
        """Plan the batches; nothing is trained yet."""
        self.config, self.pixels, self.run = config, pixels, run
        self.device, self.ranks, self.listener = device, ranks, listener
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
            seed=config.training.seed * ranks.world + ranks.rank,
        )
        self._bank = FeatureBank(len(pixels.rows))
        self._validation_features: Tensor | None = None

    def _part(self, batch: int) -> int:
        """Images of a batch that one process sees at once."""
        return math.ceil(batch / (self.ranks.world * self.config.training.accumulate))

    def _steps(self) -> int:
        """Passes of the network per epoch, the same on every rank."""
        training, ranks = self.config.training, self.ranks
        labeled, unlabeled = len(self.pixels.labeled_rows), len(self.pixels.unlabeled_rows)
        counts = torch.tensor([labeled, unlabeled])
        total_labeled, total_unlabeled = (int(count) for count in ranks.total(counts))
        if total_unlabeled:
            return math.ceil(total_unlabeled / training.batch_unlabeled) * training.accumulate
        steps = math.ceil(total_labeled / training.batch_labeled) * training.accumulate
        return min(steps, total_labeled // ranks.world)

    def run_epoch(self, state: TrainingState) -> EpochSummary:
        """Train, validate, and write one epoch."""
        epoch, started = state.epoch, time.perf_counter()
        terms = self._train(state, epoch)
        trained = time.perf_counter()
        summary = self._validate(state, EpochSummary(epoch, len(terms), *_means(terms)))
        state.summaries.append(summary)
        try:
            self._write(state, epoch)
            if self.ranks.is_first:
                self._write_time(epoch, trained - started, time.perf_counter() - trained)
        except OSError as error:
            raise TrainingError(self._cannot_write(error, state)) from error
        if self.ranks.is_first:
            self.listener.on_epoch(summary)
        return summary

    def _write(self, state: TrainingState, epoch: int) -> None:
        """Snapshot, best weights, state, and last the table: each file is complete or absent."""
        kept = state.average.model if state.average is not None else state.model
        if self.ranks.is_first and epoch + 1 in snapshot_epochs(self.config.training):
            file = snapshot_file(self.run.path, epoch + 1)
            write_snapshot(file, kept.state_dict(), self.config.training.snapshot_precision)
        if state.best_epoch == epoch:
            if self.ranks.is_first:
                # Features of other weights would give wrong distances.
                self.run.features_file.unlink(missing_ok=True)
                save_checkpoint(self.run.best_file, kept.state_dict(), self.config)
            if self.config.training.features == "online":
                self._write_online_features()
        if state.epoch % self.config.training.checkpoint_every and not self._is_last(epoch):
            return
        save_state(state, self.run, self.ranks)
        state.saved = state.epoch
        if self.ranks.is_first:
            write_epochs(self.run.epochs_file, state.summaries)

    def _write_online_features(self) -> None:
        """What the score of strangers needs, beside the weights it belongs to."""
        training = self._bank.gathered(torch.from_numpy(self.pixels.rows), self.ranks)
        validation = self._validation_features
        if self.ranks.is_first and training is not None and validation is not None:
            grid = self.config.data.size
            save_features(self.run.features_file, training, validation, grid)

    def finish(self, state: TrainingState, split: Split) -> None:
        """Keep what the best weights see, where it was asked for."""
        if self.config.training.features != "sweep" or state.best_epoch is None:
            return
        if self.ranks.agree(self.run.features_file.is_file()):
            return  # a finished run was continued and nothing was left to do
        way_out = f"Continue with --resume {self.run.path}."
        best = copy.deepcopy(state.model)
        best.load_state_dict(read_tensors(self.run.best_file, way_out=way_out)[0])
        parts = [
            swept(best, cases, self.config, self.ranks, partial(self.listener.on_prepare, label))
            for label, cases in described_cases(split).items()
        ]
        if not self.ranks.is_first or any(part is None for part in parts):
            return
        training, validation = (part for part in parts if part is not None)
        try:
            grid = stranger_grid(self.config.data.size)
            save_features(self.run.features_file, training, validation, grid)
        except OSError as error:
            raise TrainingError(self._cannot_write(error, state)) from error

    def _train(self, state: TrainingState, epoch: int) -> list[LossTerms]:
        config, ranks = self.config, self.ranks
        options = StepOptions.of_epoch(config, epoch)
        self._sweep(state, epoch)
        views: nn.Module = TwoViews(state.model.train())
        if ranks.world > 1:
            # Some encoders carry layers that a UNet does not use.
            views = DistributedDataParallel(views, find_unused_parameters=True)
        self.dataset.start_epoch(epoch)
        loader = build_loader(self.dataset, workers=self.workers)
        steps = self._bank.follow(loader, state.model)
        context = StepContext(
            epoch, self.device, ranks, state.generator, precision=config.training.precision
        )

        def update(loss: Tensor, number: int) -> None:
            # The ranks average their gradients; the gradient of the whole batch is their sum.
            scale = ranks.world / config.training.accumulate
            state.scaler.scale(loss * scale).backward()  # type: ignore[no-untyped-call]
            if (number + 1) % config.training.accumulate and number + 1 < len(self.dataset):
                return
            state.scaler.step(state.optimizer)
            state.scaler.update()
            state.optimizer.zero_grad(set_to_none=True)
            if state.average is not None:
                state.average.update(state.model)

        terms: list[LossTerms] = []
        try:
            for term in train_epoch(views, steps, state.history, options, context, update):
                terms.append(term)
                if ranks.is_first:
                    self.listener.on_step(len(terms), len(self.dataset), term)
        except NotFiniteError as error:
            raise TrainingError(self._not_finite(error, state)) from error
        return terms

    def _sweep(self, state: TrainingState, epoch: int) -> None:
        training = self.config.training
        if training.history != "sweep" or epoch < training.history_start or state.history is None:
            return
        batches = training_batches(self.pixels, EVALUATION_BATCH, self.normalization)
        sweep(state.model, batches, state.history, epoch=epoch, device=self.device)

    def _validate(self, state: TrainingState, summary: EpochSummary) -> EpochSummary:
        every = self.config.training.validate_every
        if (summary.epoch + 1) % every and not self._is_last(summary.epoch):
            return summary
        own = self.ranks.own(len(self.pixels.validation_images))
        dataset = CaseDataset(
            self.pixels.validation_images[own],
            self.pixels.validation_masks[own],
            batch_size=EVALUATION_BATCH,
            normalization=self.normalization,
        )
        loader = build_loader(dataset, workers=0)
        averaged = state.average.model if state.average is not None else None
        return replace(
            summary,
            scores=self._scores(state.model, loader, state),
            averaged_scores=None if averaged is None else self._scores(averaged, loader, state),
        )

    def _scores(self, model: nn.Module, loader: DataLoader[Batch], state: TrainingState) -> Scores:
        self.ranks.share_buffers(model)
        classes = self.config.model.classes
        with watching(model) as seen:
            scores = validate(model, loader, classes=classes, device=self.device, ranks=self.ranks)
        # The averaged weights, where there are any, come last and are the ones that are kept.
        count = len(self.pixels.validation_images)
        own = range(count)[self.ranks.own(count)]
        features = dict(zip(own, torch.cat(seen), strict=True)) if seen else {}
        self._validation_features = in_order(features, self.ranks)
        if scores is None:
            raise TrainingError(
                f"{self.run.path}: after epoch {state.epoch + 1} the network's output on the "
                f"validation images is not finite. {_last_good(self.run, state)} "
                "Try a smaller training.learning_rate."
            )
        return scores

    def _not_finite(self, error: NotFiniteError, state: TrainingState) -> str:
        rows = self.ranks.gather(torch.from_numpy(self.pixels.rows[error.cases]))
        ids = self.run.data().training_ids()
        names = ", ".join(ids[row] for row in sorted(set(rows.tolist())))
        return (
            f"{self.run.path}: the loss is not a finite number at epoch {state.epoch + 1}, "
            f"step {error.number + 1}, images {names}. {_last_good(self.run, state)} "
            "Try a smaller training.learning_rate, or look at these images."
        )

    def _cannot_write(self, error: OSError, state: TrainingState) -> str:
        return (
            f"{self.run.path}: epoch {state.epoch} cannot be written ({error.strerror or error}). "
            f"{_last_good(self.run, state)} Free some space and continue with --resume "
            f"{self.run.path}."
        )

    def _is_last(self, epoch: int) -> bool:
        return epoch == self.config.training.epochs - 1

    def _write_time(self, epoch: int, training: float, validation: float) -> None:
        new = not self.run.timing_file.exists()
        with self.run.timing_file.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(["epoch", "training_seconds", "validation_seconds"])
            writer.writerow([epoch, f"{training:.3f}", f"{validation:.3f}"])


def _last_good(run: RunFolder, state: TrainingState) -> str:
    if state.saved == 0:
        return "There is no checkpoint yet."
    return f"The last good checkpoint: {run.state_file}, after epoch {state.saved}."


def _means(terms: list[LossTerms]) -> tuple[float, float, float]:
    """Mean of each term over the steps of an epoch."""
    columns = torch.stack(
        [torch.stack([t.segmentation, t.correctness, t.consistency]) for t in terms]
    )
    segmentation, correctness, consistency = columns.double().mean(dim=0).tolist()
    return segmentation, correctness, consistency
