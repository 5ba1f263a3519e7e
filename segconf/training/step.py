"""One epoch: the labeled images in augmented views, all images in plain views, one loss."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from segconf.confidence import predict_with_confidence
from segconf.config.schema import ExperimentConfig
from segconf.conventions import IGNORE
from segconf.data.training_set import TrainingStep
from segconf.history.predictions import PredictionHistory
from segconf.losses.aleatoric import mean_and_log_variance, sampled_cross_entropy
from segconf.losses.ranking_terms import (
    LossTerms,
    RankingOptions,
    consistency_term,
    correctness_term,
    total_loss,
)
from segconf.processes import Ranks


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What the steps of one epoch do, resolved from the configuration."""

    correctness_weight: float
    consistency_weight: float
    ranking: RankingOptions
    record: bool  # remember the predictions of the plain views
    rank: bool  # let the ranking terms count
    plain_training_mode: bool  # BatchNorm of the plain pass in training mode
    noise_samples: int = 0  # draws of noisy logits; 0 for outputs without log-variance

    @classmethod
    def of_epoch(cls, config: ExperimentConfig, epoch: int) -> "StepOptions":
        """Options of an epoch (from 0): which terms the method has, and which have begun."""
        training, loss = config.training, config.loss
        uses_history = training.uses_history
        return cls(
            correctness_weight=loss.correctness_weight if uses_history else 0.0,
            consistency_weight=loss.consistency_weight if training.uses_unlabeled else 0.0,
            ranking=RankingOptions(loss.normalization, loss.pair_scope, loss.pairs, loss.target),
            record=uses_history
            and training.history == "online"
            and epoch >= training.history_start,
            rank=uses_history and epoch >= training.ranking_warmup,
            plain_training_mode=training.plain_pass == "train",  # noqa: S105
            noise_samples=loss.noise_samples if training.method == "aleatoric" else 0,
        )


class NotFiniteError(Exception):
    """The loss became NaN or infinite."""

    def __init__(self, number: int, step: TrainingStep) -> None:
        """Remember which step it was, and which cases were in it."""
        self.number = number
        self.cases = step.labeled.cases.tolist()
        if step.unlabeled is not None:
            self.cases += step.unlabeled.cases.tolist()
        super().__init__(number)


class TwoViews(nn.Module):
    """Both passes of a step in one call, which is what DistributedDataParallel can wrap."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, augmented: Tensor, plain: Tensor | None, options: StepOptions
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the augmented views and, where wanted, of the plain ones."""
        # Augmented first: it updates the BatchNorm statistics that the plain pass may read.
        logits = self.network(augmented)  # (B, K, H, W)
        if plain is None:
            return logits, None
        with (
            in_mode(self.network, training=options.plain_training_mode),
            nullcontext() if options.rank else torch.no_grad(),
        ):
            return logits, self.network(plain)


@contextmanager
def in_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Training or evaluation mode, borrowed: the previous one is given back."""
    was_training = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(was_training)


def step_terms(
    views: nn.Module,
    step: TrainingStep,
    history: PredictionHistory | None,
    options: StepOptions,
    context: "StepContext",
) -> LossTerms:
    """The three terms of a step; predictions of plain views are recorded on the way.

    Every rank returns the terms of the whole batch: ranking pairs and the normalisation span the
    ranks. The sum of the ranks' gradients is that of one process with the whole batch.
    """
    needs_plain = options.record or options.rank
    plain = _plain_images(step).to(context.device) if needs_plain else None
    with context.autocast():
        logits, plain_logits = views(step.augmented_images.to(context.device), plain, options)
    segmentation = _segmentation_term(
        logits.float(), step.augmented_masks.to(context.device), options, context.ranks
    )
    zero = segmentation.new_zeros(())
    if plain_logits is None or history is None:
        return LossTerms(segmentation, zero, zero)
    prediction, confidence = predict_with_confidence(plain_logits.float())  # (B, H, W) each
    if options.record:
        _record(history, step, prediction, context.epoch)
    if not options.rank:
        return LossTerms(segmentation, zero, zero)
    return _ranking_terms(segmentation, confidence, step, history, options, context)


@dataclass(frozen=True, slots=True)
class StepContext:
    """Where and when a step happens."""

    epoch: int
    device: torch.device
    ranks: Ranks
    generator: torch.Generator
    precision: str = "float32"

    def autocast(self) -> torch.autocast:
        """Half precision where asked for; it needs CUDA."""
        dtype = torch.bfloat16 if self.precision == "bfloat16" else torch.float16
        enabled = self.precision != "float32" and self.device.type == "cuda"
        return torch.autocast(self.device.type, dtype=dtype, enabled=enabled)


def train_epoch(
    views: nn.Module,
    loader: Iterable[TrainingStep],
    history: PredictionHistory | None,
    options: StepOptions,
    context: StepContext,
    update: Callable[[Tensor, int], None],
) -> Iterator[LossTerms]:
    """Run the steps of an epoch and yield the terms of each, detached.

    Args:
        views: the network as `TwoViews`, in training mode.
        loader: steps of the epoch.
        history: what was predicted so far; None for methods without it.
        options: which terms count.
        context: epoch, device, ranks, random pairs.
        update: called with the loss and the number of the step; does the backward pass.
    """
    for number, step in enumerate(loader):
        terms = step_terms(views, step, history, options, context)
        loss = total_loss(
            terms,
            correctness_weight=options.correctness_weight,
            consistency_weight=options.consistency_weight,
        )
        if not math.isfinite(loss.item()):
            raise NotFiniteError(number, step)
        update(loss, number)
        yield LossTerms(
            terms.segmentation.detach(), terms.correctness.detach(), terms.consistency.detach()
        )


def _plain_images(step: TrainingStep) -> Tensor:
    if step.unlabeled is None:
        return step.labeled.images
    return torch.cat([step.labeled.images, step.unlabeled.images])  # (B, C, H, W)


def _segmentation_term(
    outputs: Tensor, masks: Tensor, options: StepOptions, ranks: Ranks
) -> Tensor:
    """Cross-entropy, mean over the pixels of all ranks that are not ignored."""
    if options.noise_samples:
        mean, log_variance = mean_and_log_variance(outputs)  # (B, K, H, W) each
        # From the global generator, as dropout: its state is kept for every rank.
        noise = torch.randn(options.noise_samples, *mean.shape, device=mean.device)
        total = sampled_cross_entropy(mean, log_variance, masks, noise).sum()
    else:
        total = cross_entropy(outputs, masks, ignore_index=IGNORE, reduction="sum")
    count = ranks.total((masks != IGNORE).sum()).clamp(min=1)
    local = total / count
    # The value is that of the whole batch; the gradient stays that of the own pixels.
    return local + (ranks.total(local.detach()) - local.detach())


def _record(history: PredictionHistory, step: TrainingStep, prediction: Tensor, epoch: int) -> None:
    labeled = len(step.labeled.cases)
    history.record(step.labeled.cases, prediction[:labeled], epoch=epoch, masks=step.labeled.masks)
    if step.unlabeled is not None:
        history.record(step.unlabeled.cases, prediction[labeled:], epoch=epoch)


def _ranking_terms(
    segmentation: Tensor,
    confidence: Tensor,
    step: TrainingStep,
    history: PredictionHistory,
    options: StepOptions,
    context: StepContext,
) -> LossTerms:
    ranks, device, labeled = context.ranks, context.device, len(step.labeled.cases)
    if step.labeled.masks is None:
        raise ValueError("the labeled part of a step needs its masks")
    labeled_confidence = ranks.gather(confidence[:labeled])  # (L, H, W) of all ranks
    correctness = correctness_term(
        labeled_confidence,
        ranks.gather(history.correctness(step.labeled.cases).to(device)),
        ranks.gather(step.labeled.masks.to(device)),
        options=options.ranking,
        generator=context.generator,
    )
    if options.consistency_weight == 0:
        return LossTerms(segmentation, correctness, segmentation.new_zeros(()))
    targets = [ranks.gather(history.consistency(step.labeled.cases).to(device))]
    confidences = [labeled_confidence]
    others = confidence[labeled:]  # (U, H, W), empty when there is nothing unlabeled
    cases = step.unlabeled.cases if step.unlabeled is not None else step.labeled.cases[:0]
    targets.append(ranks.gather(history.consistency(cases).to(device)))
    confidences.append(ranks.gather(others))
    consistency = consistency_term(
        torch.cat(confidences),
        torch.cat(targets),
        labeled=len(labeled_confidence),
        options=options.ranking,
        generator=context.generator,
    )
    return LossTerms(segmentation, correctness, consistency)
