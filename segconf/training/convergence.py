"""When a training has converged: validations that bring nothing new."""

import math
from collections.abc import Sequence
from dataclasses import replace

from segconf.config.schema import TrainingConfig
from segconf.methods.method import ALWAYS_WEIGHTED, Method
from segconf.runs.epochs import EpochSummary


def judged(
    summary: EpochSummary,
    earlier: Sequence[EpochSummary],
    training: TrainingConfig,
    method: Method,
) -> EpochSummary:
    """The summary of an epoch with its count of validations without gain, if that may end a run."""
    if training.patience is None or summary.selected is None:
        return summary
    first = first_judged_epoch(training, method)
    return replace(summary, stalled=validations_without_gain([*earlier, summary], first))


def first_judged_epoch(training: TrainingConfig, method: Method) -> int:
    """The epoch from which validations may end a run: that in which all terms have full weight."""
    if method.epochs_are_fixed:
        return math.ceil(training.epochs / 2)  # its second half is another phase
    grows = not ALWAYS_WEIGHTED.issuperset(method.terms)
    return training.ranking_warmup + training.ranking_ramp if grows else 0


def validations_without_gain(summaries: Sequence[EpochSummary], first: int) -> int:
    """Latest validations, from the epoch `first` on, with neither a new best mIoU nor AURC.

    For labels it is the accuracy instead of the mIoU.

    Scores are those of the weights that would be kept. Validations before are not counted, but a
    later one must be better than theirs.
    """
    best, best_aurc, count = -math.inf, math.inf, 0
    for summary in summaries:
        scores = summary.selected
        if scores is None:
            continue
        quality = scores.quality[1]
        gained = quality > best or scores.aurc < best_aurc
        best, best_aurc = max(best, quality), min(best_aurc, scores.aurc)
        count = 0 if gained or summary.epoch < first else count + 1
    return count
