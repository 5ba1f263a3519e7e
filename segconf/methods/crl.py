"""Correctness ranking loss (Moon et al. 2020) on the labeled pixels."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from segconf.config.schema import LossConfig
from segconf.losses.ranking_terms import RankingOptions, correctness_term
from segconf.methods.method import LossContext, Method, StepOutputs, register


@register
class CorrectnessRanking(Method):
    """Confidence ranked by how often a labeled pixel was predicted correctly (correctness)."""

    name = "crl"
    uses_history = True
    terms: ClassVar[tuple[str, ...]] = ("supervised", "correctness")

    def weights(self, loss: LossConfig) -> Mapping[str, float]:
        """The ranking term beside the cross-entropy."""
        return {"supervised": 1.0, "correctness": loss.correctness_weight}

    def loss(self, step: StepOutputs, context: LossContext) -> dict[str, Tensor]:
        """Cross-entropy, and the ranking of the labeled pixels once it has begun."""
        terms = super().loss(step, context)
        zero = terms["supervised"].new_zeros(())
        return terms | {"correctness": _correctness(step, context, otherwise=zero)}


def ranking_options(loss: LossConfig) -> RankingOptions:
    """How the configuration pairs pixels."""
    return RankingOptions(loss.normalization, loss.pair_scope, loss.pairs, loss.target)


def _correctness(step: StepOutputs, context: LossContext, *, otherwise: Tensor) -> Tensor:
    if step.labeled_confidence is None or context.history is None:
        return otherwise
    if step.labeled.masks is None:
        raise ValueError("the labeled part of a step needs its masks")
    group, device = context.group, context.device
    return correctness_term(
        step.labeled_confidence,
        group.gather(context.history.correctness(step.labeled.cases).to(device)),
        group.gather(step.labeled.masks.to(device)),
        options=ranking_options(context.loss),
        generator=context.generator,
    )
