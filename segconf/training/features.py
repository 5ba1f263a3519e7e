"""What the encoder sees in the images of a run, collected for the score of strangers.

Validation features come from the validation pass of the weights that are kept. Training features
come, with `online`, from the passes that train: they cost nothing, but BatchNorm is in training
mode and the weights still move, and with averaged weights they are those of the raw ones. With
`sweep` the kept weights look once more at the training images, in evaluation mode. Either way the
threshold is fitted on validation features, which have none of these flaws.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from segconf.data.datasets import Batch, TrainingStep
from segconf.strangers import pooled_features
from segconf.training.parallel import Ranks
from segconf.training.steps import in_mode


@contextmanager
def watching(model: nn.Module) -> Iterator[list[Tensor]]:
    """Pooled features (B, F) of every pass through the encoder; nothing without an encoder."""
    seen: list[Tensor] = []
    encoder = getattr(model, "encoder", None)
    if encoder is None:
        yield seen
        return

    def keep(_module: nn.Module, _inputs: Any, maps: Any) -> None:
        seen.append(pooled_features(maps).cpu())

    handle = encoder.register_forward_hook(keep)
    try:
        yield seen
    finally:
        handle.remove()


class FeatureBank:
    """The newest features of the training images of one rank, by their slots."""

    def __init__(self, slots: int) -> None:
        """Room for that many images."""
        self._rows: list[Tensor | None] = [None] * slots

    def follow(self, steps: Iterable[TrainingStep], model: nn.Module) -> Iterator[TrainingStep]:
        """Hand on steps and keep the features of the last pass of each.

        That pass sees the plain views where there are any, else the augmented ones; labeled images
        come first in both. What an earlier epoch left is forgotten, so that a run that was
        interrupted and continued keeps the same features.
        """
        self._rows = [None] * len(self._rows)
        with watching(model) as seen:
            for step in steps:
                yield step
                if seen:
                    self._keep(_cases(step), seen[-1])
                seen.clear()

    def sweep(self, batches: Iterable[Batch], model: nn.Module, device: torch.device) -> None:
        """Replace all features by those of the present weights in evaluation mode."""
        encoder = getattr(model, "encoder", None)
        if encoder is None:
            return
        with in_mode(model, training=False), torch.no_grad():
            for batch in batches:
                self._keep(batch.cases, pooled_features(encoder(batch.images.to(device))).cpu())

    def gathered(self, rows: Tensor, ranks: Ranks) -> Tensor | None:
        """Features (N, F) of the images of all ranks, by row; None where nothing was seen.

        Args:
            rows: (S,) row of each slot among all training images.
            ranks: the processes that share the images.
        """
        known = {int(row): kept for row, kept in zip(rows, self._rows, strict=True)}
        return in_order({row: kept for row, kept in known.items() if kept is not None}, ranks)

    def _keep(self, cases: Tensor, features: Tensor) -> None:
        for slot, row in zip(cases.tolist(), features, strict=False):
            self._rows[slot] = row


def in_order(own: dict[int, Tensor], ranks: Ranks) -> Tensor | None:
    """Rows of all ranks by their number, stacked; None where there are none."""
    every = {number: row for part in ranks.collect(own) for number, row in part.items()}
    return torch.stack([every[number] for number in sorted(every)]) if every else None


def _cases(step: TrainingStep) -> Tensor:
    if step.unlabeled is None:
        return step.labeled.cases
    return torch.cat([step.labeled.cases, step.unlabeled.cases])
