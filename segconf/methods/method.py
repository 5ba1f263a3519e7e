"""The interface of a method, and the registry that configuration, command line and tests read."""

from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from segconf.checkpoints.weight_files import Checkpoint
from segconf.config.ranges import Task
from segconf.config.schema import ExperimentConfig, LossConfig, ModelConfig, TrainingConfig
from segconf.conventions import IGNORE
from segconf.data.training_set import Batch
from segconf.history.predictions import PredictionHistory
from segconf.inference.predictors import Predictor, SinglePass
from segconf.losses.soft_dice import overlap_sums, soft_dice_loss
from segconf.models.networks import build_network
from segconf.processes import ProcessGroup
from segconf.registry import METHODS, Registry
from segconf.runs.epochs import EpochSummary

ALWAYS_WEIGHTED = frozenset({"supervised", "calibration"})
"""Loss terms that count from the first epoch; the others wait for the warm-up and its ramp."""


@dataclass(frozen=True, slots=True)
class Past:
    """Views of a step beside what was said about them in earlier epochs.

    Attributes:
        outputs: (B, K', H, W) of the network, with gradient.
        mean: (B, K, H, W) probabilities of the mean log-odds of earlier epochs.
        known: (B,) whether there was an earlier epoch.
    """

    outputs: Tensor
    mean: Tensor
    known: Tensor


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """What the network says about the images of a step, and what is known about them.

    Attributes:
        outputs: (B, K', H, W) network outputs for the augmented labeled views.
        masks: (B, H, W) masks of these views, 255 = ignore.
        labeled: unaugmented views of the labeled images of this process.
        unlabeled: unaugmented views of its unlabeled images, if any.
        labeled_confidence: (L, H, W) confidence of the unaugmented labeled views of all processes;
            None where the step did not compute them.
        unlabeled_confidence: (U, H, W) the same for the unlabeled views.
        labeled_outputs: (L, K', H, W) network outputs for the unaugmented labeled views of this
            process, with gradient; None where the step did not compute them.
        past: what views of this process learn from; None for methods without it, and before the
            warm-up has passed.
    """

    outputs: Tensor
    masks: Tensor
    labeled: Batch
    unlabeled: Batch | None
    labeled_confidence: Tensor | None
    unlabeled_confidence: Tensor | None
    labeled_outputs: Tensor | None = None
    past: Past | None = None


@dataclass(frozen=True, slots=True)
class LossContext:
    """Settings and surroundings of a loss.

    Attributes:
        loss: the loss section of the configuration.
        history: predictions of earlier epochs; None for methods without it.
        group: the processes that share the batch.
        generator: draws the ranking pairs.
        device: where the network computes.
        prepared: what the method prepared for the epoch.
    """

    loss: LossConfig
    history: PredictionHistory | None
    group: ProcessGroup
    generator: torch.Generator
    device: torch.device
    prepared: Tensor | None = None


@dataclass(frozen=True, slots=True)
class EpochStart:
    """What a method may look at before an epoch.

    Attributes:
        epoch: number of the epoch, from 0.
        config: of the run.
        summaries: of all epochs before.
        labeled: logits (B, K, H, W) and masks (B, H, W) of the unaugmented labeled images of this
            process, batch by batch, in evaluation mode.
        group: the processes that share the images.
    """

    epoch: int
    config: ExperimentConfig
    summaries: Sequence[EpochSummary]
    labeled: Callable[[], Iterator[tuple[Tensor, Tensor]]]
    group: ProcessGroup


class Method(ABC):
    """How a network is built, trained and used.

    The base class is plain training: cross-entropy or Dice on the labeled images, and one
    deterministic pass per prediction. A method overrides what it does in another way.
    """

    name: ClassVar[str]
    """Value of `training.method`."""
    uses_history: ClassVar[bool] = False
    """Whether predictions of unaugmented views are recorded, and confidence is ranked by them."""
    uses_past: ClassVar[bool] = False
    """Whether the history keeps a running mean of log-odds, from which the network learns."""
    uses_unlabeled: ClassVar[bool] = False
    """Whether unlabeled images take part in the training."""
    default_snapshots: ClassVar[int] = 0
    """Weights kept along the training where the configuration does not say how many."""
    exportable: ClassVar[bool] = True
    """Whether a prediction is the mean probability of networks with fixed weights."""
    epochs_are_fixed: ClassVar[bool] = False
    """Whether the number of epochs decides what an epoch does, so that none can be added later."""
    terms: ClassVar[tuple[str, ...]] = ("supervised",)
    """Names of the loss terms, in the order in which they are added and shown."""

    @classmethod
    def summary(cls) -> str:
        """One sentence about the method, for tables and help."""
        return (cls.__doc__ or "").partition("\n")[0].rstrip(".")

    def check(self, config: ExperimentConfig) -> None:  # noqa: B027 - most work with any
        """Refuse a configuration that the method cannot work with.

        Raises:
            ConfigError: naming the setting and the way out.
        """

    def build(
        self, config: ModelConfig, task: Task = "segmentation", *, pretrained: bool = True
    ) -> nn.Module:
        """The network: images (B, C, H, W) to outputs (B, K', H, W), the K logits first.

        Args:
            config: the model section.
            task: masks, or labels, whose outputs have one pixel.
            pretrained: False when trained weights follow, so that no encoder weights are needed.
        """
        return build_network(config, task, pretrained=pretrained)

    def weights(self, loss: LossConfig) -> Mapping[str, float]:  # noqa: ARG002 - for others
        """Weight of each loss term."""
        return {"supervised": 1.0}

    def prepare_epoch(self, start: EpochStart) -> Tensor | None:  # noqa: ARG002 - for others
        """What the losses of an epoch need beside its steps; None for most methods.

        It must follow from the weights and the epochs before, so that a resumed run prepares the
        same.
        """
        return None

    def loss(self, step: StepOutputs, context: LossContext) -> dict[str, Tensor]:
        """The loss terms of a step before weighting, each a scalar.

        Every process returns the terms of the whole batch, and the sum of the processes' gradients
        is that of one process with the whole batch.
        """
        match context.loss.segmentation:
            case "dice":
                supervised = self._dice_loss(step, context)
            case "dice_ce":
                supervised = self._likelihood_loss(step, context) + self._dice_loss(step, context)
            case _:
                supervised = self._likelihood_loss(step, context)
        return {"supervised": supervised}

    def _likelihood_loss(self, step: StepOutputs, context: LossContext) -> Tensor:
        """Mean of the supervised loss over the pixels of the whole batch."""
        total = self.supervised_sum(step.outputs, step.masks, context.loss)
        count = context.group.total((step.masks != IGNORE).sum()).clamp(min=1)
        return context.group.shared_total(total / count)

    def _dice_loss(self, step: StepOutputs, context: LossContext) -> Tensor:
        """Soft Dice over the whole batch."""
        sums = overlap_sums(step.outputs, step.masks)  # (3, K)
        return soft_dice_loss(context.group.shared_total(sums))

    def supervised_sum(self, outputs: Tensor, masks: Tensor, loss: LossConfig) -> Tensor:  # noqa: ARG002
        """Sum of the supervised loss over the pixels that are not ignored."""
        return cross_entropy(outputs, masks, ignore_index=IGNORE, reduction="sum")

    def member_configs(self, config: ExperimentConfig) -> tuple[ExperimentConfig, ...]:  # noqa: ARG002
        """Configurations of the networks that make up one run; none where it is one network."""
        return ()

    def passes(self, config: ExperimentConfig) -> int:  # noqa: ARG002 - for others
        """Passes of the network, or of its decoder, per predicted image."""
        return 1

    def predictor(self, checkpoint: Checkpoint) -> Predictor:
        """How a trained network of this method predicts."""
        return SinglePass(checkpoint.model)

    def weight_files(self, file: Path, config: ExperimentConfig) -> tuple[Path, ...]:  # noqa: ARG002 - for others
        """Weights files beside the one of the run that a prediction uses."""
        return ()

    def snapshot_epochs(self, training: TrainingConfig) -> tuple[int, ...]:
        """Numbers of finished epochs after which a snapshot is taken, the last epoch included.

        With n snapshots in E epochs after the start these are ``start + ceil(k E / n)``,
        k = 1 .. n.
        """
        room = training.epochs - training.snapshot_start
        count = training.snapshots
        if count is None:
            count = min(self.default_snapshots, room)
        return tuple(training.snapshot_start - (-k * room // count) for k in range(1, count + 1))


methods: Registry[Method] = METHODS
register = methods.register


def method_of(config: ExperimentConfig) -> Method:
    """The method that a configuration names."""
    return methods.get(config.training.method)
