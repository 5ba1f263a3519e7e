"""What the encoder sees in the images of a run, collected for the score of strangers.

With `sweep` the best weights look once, after the last epoch and in evaluation mode, at all
training images: also at the unlabeled ones that the method makes no use of, since no label is
needed and many images tell better what is usual.

With `online` the features come from the passes that train and from the validation pass of the
weights that are kept. They cost nothing, but only images that the method trains on are among them,
BatchNorm is in training mode, the weights still move, and with averaged weights they are those of
the raw ones.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from segconf.data.cache import Pixels
from segconf.data.datasets import Normalization, TrainingStep
from segconf.data.transforms import normalize
from segconf.strangers import pooled_features
from segconf.training.parallel import Ranks
from segconf.training.steps import in_mode

SWEEP_BATCH = 16


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


def swept(
    model: nn.Module,
    images: Pixels,
    normalization: Normalization,
    ranks: Ranks,
    on_batch: Callable[[int, int], None],
) -> Tensor | None:
    """Features (N, F) of images (N, H, W, C) in evaluation mode; None without an encoder.

    Args:
        model: the network, the same on every rank.
        images: of all ranks; each one looks at its part.
        normalization: what the encoder expects.
        ranks: the processes that share the images.
        on_batch: called on the first rank with how many images of it are done, and how many it has.
    """
    encoder = getattr(model, "encoder", None)
    if encoder is None:
        return None
    rows = np.arange(len(images))[ranks.own(len(images))]
    found: dict[int, Tensor] = {}
    device = next(model.parameters()).device
    with in_mode(model, training=False), torch.no_grad():
        for start in range(0, len(rows), SWEEP_BATCH):
            part = rows[start : start + SWEEP_BATCH]
            inputs = normalize(images[part], mean=normalization.mean, std=normalization.std)
            features = pooled_features(encoder(inputs.to(device))).cpu()  # (B, F)
            found |= dict(zip(part.tolist(), features, strict=True))
            if ranks.is_first:
                on_batch(len(found), len(rows))
    return in_order(found, ranks)


def in_order(own: dict[int, Tensor], ranks: Ranks) -> Tensor | None:
    """Rows of all ranks by their number, stacked; None where there are none."""
    every = {number: row for part in ranks.collect(own) for number, row in part.items()}
    return torch.stack([every[number] for number in sorted(every)]) if every else None


def _cases(step: TrainingStep) -> Tensor:
    if step.unlabeled is None:
        return step.labeled.cases
    return torch.cat([step.labeled.cases, step.unlabeled.cases])
