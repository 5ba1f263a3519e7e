"""Distillation from the past: unlabeled pixels learn from the mean of their earlier predictions.

A running mean of earlier predictions as the target of a network is known as temporal ensembling
(Laine and Aila, 2017). A US patent (11068781) names it: commercial users may want to look into it.
Here the mean is that of the log-odds, which stays as certain as they are; it costs one byte a pixel
beside the history that the ranking needs, and no further pass. With hundreds of labels the network
is underconfident until its temperature is fitted.
"""

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import log_softmax

from segconf.config.schema import LossConfig
from segconf.methods.consistency import ConsistencyRanking
from segconf.methods.method import LossContext, StepOutputs, register


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
        """The terms of `consistency`, and the cross-entropy to the past."""
        terms = super().loss(step, context)
        past = step.past
        if past is None:
            return terms | {"distillation": terms["supervised"].new_zeros(())}
        total = soft_cross_entropy_sum(past.outputs[past.known], past.mean[past.known])
        pixels = past.known.sum() * past.mean[0, 0].numel()
        local = total / context.group.total(pixels).clamp(min=1)
        return terms | {"distillation": context.group.shared_total(local)}


def soft_cross_entropy_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over all pixels of ``-sum_k t_k log p_k``.

    Args:
        logits: (B, K', H, W); the first K are those of the classes.
        targets: (B, K, H, W) probabilities, without gradient.
    """
    log_probabilities = log_softmax(logits[:, : targets.shape[1]], dim=1)
    return -(targets * log_probabilities).sum()
