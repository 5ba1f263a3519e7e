"""Consistency ranking loss (Li, Hu and Chen, ICLR 2023) on labeled and unlabeled pixels."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from segconf.config.schema import LossConfig
from segconf.losses.ranking_terms import consistency_term
from segconf.methods.crl import CorrectnessRanking, ranking_options
from segconf.methods.method import LossContext, StepOutputs, register


@register
class ConsistencyRanking(CorrectnessRanking):
    """Confidence also ranked by how rarely a prediction changed, on unlabeled images too."""

    name = "consistency"
    uses_unlabeled = True
    terms: ClassVar[tuple[str, ...]] = ("supervised", "correctness", "consistency")

    def weights(self, loss: LossConfig) -> Mapping[str, float]:
        """Both ranking terms beside the cross-entropy."""
        return {**super().weights(loss), "consistency": loss.consistency_weight}

    def loss(self, step: StepOutputs, context: LossContext) -> dict[str, Tensor]:
        """Cross-entropy, correctness ranking, and the ranking of all pixels by consistency."""
        terms = super().loss(step, context)
        zero = terms["supervised"].new_zeros(())
        return terms | {"consistency": _consistency(step, context, otherwise=zero)}


def _consistency(step: StepOutputs, context: LossContext, *, otherwise: Tensor) -> Tensor:
    labeled, unlabeled = step.labeled_confidence, step.unlabeled_confidence
    if labeled is None or unlabeled is None or context.history is None:
        return otherwise
    if context.loss.consistency_weight == 0:
        return otherwise
    group, device, history = context.group, context.device, context.history
    cases = step.unlabeled.cases if step.unlabeled is not None else step.labeled.cases[:0]
    targets = [
        group.gather(history.consistency(step.labeled.cases).to(device)),
        group.gather(history.consistency(cases).to(device)),
    ]
    return consistency_term(
        torch.cat([labeled, unlabeled]),
        torch.cat(targets),
        labeled=len(labeled),
        options=ranking_options(context.loss),
        generator=context.generator,
    )
