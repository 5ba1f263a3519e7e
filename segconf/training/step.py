"""One step: augmented views for the supervised term, unaugmented views for history and ranking."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from segconf.confidence import predict_with_confidence
from segconf.config.schema import ExperimentConfig, TrainingConfig
from segconf.data.training_set import Batch, TrainingStep
from segconf.errors import TrainingError
from segconf.history.predictions import PredictionHistory
from segconf.history.probabilities import ProbabilityHistory
from segconf.methods.method import ALWAYS_WEIGHTED, LossContext, Method, Past, StepOutputs


@dataclass(frozen=True, slots=True)
class StepOptions:
    """What the steps of one epoch do with the unaugmented views.

    Attributes:
        epoch: number of the epoch, from 0.
        record: take down the predictions in the history.
        rank: let the ranking terms count.
        batch_norm_training: BatchNorm of the unaugmented pass in training mode.
        precision: float32, or half precision on CUDA.
    """

    epoch: int
    record: bool
    rank: bool
    batch_norm_training: bool
    precision: str = "float32"

    @classmethod
    def of_epoch(cls, config: ExperimentConfig, method: Method, epoch: int) -> "StepOptions":
        """Options of an epoch: which terms the method has, and which have begun."""
        training = config.training
        return cls(
            epoch=epoch,
            record=method.uses_history
            and training.history == "online"
            and epoch >= training.history_start,
            rank=method.uses_history and epoch >= training.ranking_warmup,
            batch_norm_training=training.unaugmented_bn_mode == "train",
            precision=training.precision,
        )


def ramped_weights(
    weights: Mapping[str, float], training: TrainingConfig, epoch: int
) -> dict[str, float]:
    """Weights of the loss terms in an epoch; all but the supervised ones grow along the ramp.

    After a warm-up of w epochs and on a ramp of r, epoch e has ``min(1, (e - w + 1) / (r + 1))`` of
    each weight.
    """
    passed = epoch - training.ranking_warmup + 1
    factor = min(1.0, max(0.0, passed / (training.ranking_ramp + 1)))
    return {
        name: weight if name in ALWAYS_WEIGHTED else factor * weight
        for name, weight in weights.items()
    }


class TwoViews(nn.Module):
    """Both passes of a step in one call, which is what DistributedDataParallel can wrap."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, augmented: Tensor, unaugmented: Tensor | None, options: StepOptions
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs for the augmented views and, where wanted, for the unaugmented ones."""
        # Augmented first: it updates the BatchNorm statistics that the second pass may read.
        outputs = self._outputs(augmented)  # (B, K', H, W)
        if unaugmented is None:
            return outputs, None
        with (
            in_mode(self.network, training=options.batch_norm_training),
            nullcontext() if options.rank else torch.no_grad(),
        ):
            return outputs, self._outputs(unaugmented)

    def _outputs(self, images: Tensor) -> Tensor:
        try:
            outputs: Tensor = self.network(images)
        except ValueError as error:
            if len(images) > 1:
                raise
            # BatchNorm cannot do with a single value per channel.
            height, width = images.shape[2:]
            raise TrainingError(
                f"data.size = {height}, {width}: too small for a step with a single image. Change "
                "training.batch_labeled so that no image is left over, or choose a larger size."
            ) from error
        return outputs


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
    method: Method,
    options: StepOptions,
    context: LossContext,
) -> dict[str, Tensor]:
    """The loss terms of a step; predictions of unaugmented views are recorded on the way.

    Every process returns the terms of the whole batch: ranking pairs and the normalisation span
    the processes. The sum of their gradients is that of one process with the whole batch.
    """
    device = context.device
    needs_views = options.record or options.rank
    unaugmented = _unaugmented_images(step).to(device) if needs_views else None
    with _autocast(options.precision, device):
        outputs, second = views(step.augmented_images.to(device), unaugmented, options)
    labeled = unlabeled = labeled_outputs = None
    past: Past | None = None
    if second is not None and context.history is not None:
        second = _unflipped(second.float(), step)  # (B, K', H, W)
        prediction, confidence = predict_with_confidence(second)  # (B, H, W) each
        if isinstance(context.history, ProbabilityHistory) and options.rank:
            past = _past(context.history, step, second)  # before this epoch is recorded
        if options.record:
            _record(context.history, step, prediction, second, options.epoch)
        if options.rank:
            count = len(step.labeled.cases)
            labeled_outputs = second[:count]
            labeled = context.group.gather(confidence[:count])  # (L, H, W) of all processes
            unlabeled = context.group.gather(confidence[count:])  # (U, H, W), may be empty
    return method.loss(
        StepOutputs(
            outputs=outputs.float(),
            masks=step.augmented_masks.to(device),
            labeled=step.labeled,
            unlabeled=step.unlabeled,
            labeled_confidence=labeled,
            unlabeled_confidence=unlabeled,
            labeled_outputs=labeled_outputs,
            past=past,
        ),
        context,
    )


def _past(history: ProbabilityHistory, step: TrainingStep, outputs: Tensor) -> Past:
    """What the unlabeled images, or the labeled ones where there are no others, learn from."""
    chosen = step.labeled if step.unlabeled is None else step.unlabeled
    own = outputs[: len(chosen.cases)] if step.unlabeled is None else outputs[-len(chosen.cases) :]
    mean = history.mean(chosen.cases).to(outputs.device)
    return Past(own, mean, history.has_record(chosen.cases).to(outputs.device))


def _unflipped(outputs: Tensor, step: TrainingStep) -> Tensor:
    """Outputs (B, K', H, W) of the views with their flips undone: every pixel at its place."""
    batches = [step.labeled, *([] if step.unlabeled is None else [step.unlabeled])]
    flips = [batch.flips for batch in batches if batch.flips is not None]
    if not flips:
        return outputs
    for axis, chosen in zip((2, 3), torch.cat(flips).to(outputs.device).T, strict=True):
        outputs = torch.where(chosen[:, None, None, None], outputs.flip(axis), outputs)
    return outputs


def _autocast(precision: str, device: torch.device) -> torch.autocast:
    """Half precision where asked for; it needs CUDA."""
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float16
    enabled = precision != "float32" and device.type == "cuda"
    return torch.autocast(device.type, dtype=dtype, enabled=enabled)


def _unaugmented_images(step: TrainingStep) -> Tensor:
    if step.unlabeled is None:
        return step.labeled.images
    return torch.cat([step.labeled.images, step.unlabeled.images])  # (B, C, H, W)


def _record(
    history: PredictionHistory, step: TrainingStep, prediction: Tensor, outputs: Tensor, epoch: int
) -> None:
    end = len(step.labeled.cases)
    for batch, part in ((step.labeled, slice(0, end)), (step.unlabeled, slice(end, None))):
        if batch is not None:
            record(history, batch, prediction[part], outputs[part], epoch=epoch)


def record(
    history: PredictionHistory, batch: Batch, prediction: Tensor, outputs: Tensor, *, epoch: int
) -> None:
    """Take down what the network says about a batch, as far as the history keeps it."""
    if not isinstance(history, ProbabilityHistory):
        history.record(batch.cases, prediction, epoch=epoch, masks=batch.masks)
        return
    said = outputs.detach()[:, : history.classes].softmax(dim=1)  # (B, K, H, W)
    history.record(batch.cases, prediction, epoch=epoch, masks=batch.masks, probabilities=said)
