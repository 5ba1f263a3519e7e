"""Distillation from the past: unlabeled pixels learn from the mean of their earlier predictions.

A running mean of earlier predictions as the target of a network is known as temporal ensembling
(Laine and Aila, 2017). A US patent (11068781) names it: commercial users may want to look into it.
Here the mean is that of the log-odds, which stays as certain as they are; it costs one byte a pixel
beside the history that the ranking needs, and no further pass. Labeled pixels of the same views,
which the ranking passes through the network anyway, learn from their masks: where only the own past
is a target, errors are confirmed in a long training. After a short one the confidence may be too
low, as the mean of early predictions is soft, until the temperature is fitted.
"""

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from segconf.config.schema import LossConfig
from segconf.conventions import IGNORE
from segconf.methods.consistency import ConsistencyRanking
from segconf.methods.method import LossContext, Past, StepOutputs, register

LABELED_WEIGHT = 0.5
"""Of the unaugmented labeled pixels beside the unlabeled ones: in batches with twice as many
unlabeled as labeled images, as in the schedule of the paper, every pixel counts alike."""


@register
class Distillation(ConsistencyRanking):
    """Consistency, and unlabeled pixels learn from the mean of their earlier predictions."""

    name = "distillation"
    uses_past = True
    terms = ("supervised", "correctness", "consistency", "distillation")

    def weights(self, loss: LossConfig) -> Mapping[str, float]:
        """The ranking terms and the distillation beside the cross-entropy."""
        return {**super().weights(loss), "distillation": loss.distillation_weight}

    def loss(self, step: StepOutputs, context: LossContext) -> dict[str, Tensor]:
        """The terms of `consistency`, and the cross-entropy of the unaugmented views."""
        terms = super().loss(step, context)
        if step.past is None or step.labeled_outputs is None:
            return terms | {"distillation": terms["supervised"].new_zeros(())}
        unlabeled = _unlabeled_mean(step.past, context)
        labeled = _labeled_mean(step.labeled_outputs, step.labeled.masks, context)
        local = unlabeled + LABELED_WEIGHT * labeled
        return terms | {"distillation": context.group.shared_total(local)}


def _unlabeled_mean(past: Past, context: LossContext) -> Tensor:
    """Cross-entropy to the past: what this process adds to the mean over all processes."""
    total = soft_cross_entropy_sum(past.outputs[past.known], past.mean[past.known])
    pixels = past.known.sum() * past.mean[0, 0].numel()
    return total / context.group.total(pixels).clamp(min=1)


def _labeled_mean(outputs: Tensor, masks: Tensor | None, context: LossContext) -> Tensor:
    """Cross-entropy to the masks: what this process adds to the mean over all processes."""
    if masks is None:
        raise ValueError("the labeled part of a step needs its masks")
    targets = masks.to(context.device).long()  # (L, H, W)
    total = cross_entropy(outputs, targets, ignore_index=IGNORE, reduction="sum")
    return total / context.group.total((targets != IGNORE).sum()).clamp(min=1)


def soft_cross_entropy_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over all pixels of ``-sum_k t_k log p_k``.

    Args:
        logits: (B, K', H, W); the first K are those of the classes.
        targets: (B, K, H, W) probabilities, without gradient.
    """
    log_probabilities = log_softmax(logits[:, : targets.shape[1]], dim=1)
    return -(targets * log_probabilities).sum()
