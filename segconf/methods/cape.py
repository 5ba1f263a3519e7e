"""Calibrated probability estimation (CaPE, Liu et al. 2022, "Deep probability estimation").

The cross-entropy is minimised until the validation NLL stops falling, and for half of the epochs at
most. From there on some epochs have other targets: for every labeled pixel the empirical frequency
of each class among the training pixels that were given a similar probability. These frequencies are
measured before each such epoch, on unaugmented views and in evaluation mode, so that a run that is
resumed measures the same ones.

Two things differ from the publication, so that augmented pixels and any number of classes can be
handled: a pixel finds its target by its present probability, and the training goes on from the
weights at the end of the first phase, not from the best ones before.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from segconf.config.schema import LossConfig
from segconf.conventions import IGNORE
from segconf.losses.empirical_targets import (
    cell_counts,
    empirical_frequencies,
    frequency_targets,
    no_counts,
)
from segconf.methods.distillation import soft_cross_entropy_sum
from segconf.methods.method import EpochStart, LossContext, Method, StepOutputs, register
from segconf.runs.epochs import EpochSummary


@register
class CalibratedEstimation(Method):
    """Cross-entropy in turn with the class frequencies of pixels of similar probability."""

    name = "cape"
    epochs_are_fixed = True
    terms: ClassVar[tuple[str, ...]] = ("supervised", "calibration")

    def weights(self, loss: LossConfig) -> Mapping[str, float]:  # noqa: ARG002 - one at a time
        """Both the same: an epoch has one of them."""
        return {"supervised": 1.0, "calibration": 1.0}

    def prepare_epoch(self, start: EpochStart) -> Tensor | None:
        """Frequencies (K, cells) before an epoch that has them as targets; else None."""
        loss = start.config.loss
        first = calibration_start(
            start.summaries, patience=loss.cape_patience, epochs=start.config.training.epochs
        )
        if start.epoch < first or (start.epoch - first) % loss.cape_every:
            return None
        counts = no_counts(start.config.model.classes)  # (2, K, cells)
        for logits, masks in start.labeled():
            counts += cell_counts(logits, masks).cpu()
        bins = loss.cape_bins if loss.cape_targets == "bins" else None
        total = start.group.total(counts)
        return empirical_frequencies(total, bins=bins, bandwidth=loss.cape_bandwidth)

    def loss(self, step: StepOutputs, context: LossContext) -> dict[str, Tensor]:
        """Cross-entropy to the masks, or to the frequencies."""
        frequencies = context.prepared
        if frequencies is None:
            terms = super().loss(step, context)
            return terms | {"calibration": terms["supervised"].new_zeros(())}
        counted = step.masks != IGNORE  # (B, H, W)
        targets = frequency_targets(step.outputs.detach(), frequencies.to(step.outputs))
        total = soft_cross_entropy_sum(step.outputs, targets * counted[:, None])
        local = total / context.group.total(counted.sum()).clamp(min=1)
        return {
            "supervised": local.new_zeros(()),
            "calibration": context.group.shared_total(local),
        }


def calibration_start(summaries: Sequence[EpochSummary], *, patience: int, epochs: int) -> int:
    """Number of the first epoch with frequencies as targets.

    It follows the validation that is the `patience`-th in a row without a new lowest NLL; half of
    the epochs is the latest.
    """
    latest = math.ceil(epochs / 2)
    best, waited = math.inf, 0
    for summary in summaries:
        if summary.scores is None:
            continue
        waited = 0 if summary.scores.nll < best else waited + 1
        best = min(best, summary.scores.nll)
        if waited == patience:
            return min(latest, summary.epoch + 1)
    return latest
