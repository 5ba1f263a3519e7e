"""What the encoder sees in the images of a run, collected for the score of strangers.

With `sweep` the best weights look once, after the last epoch and in evaluation mode, at training
images: also at the unlabeled ones that the method makes no use of, since no label is needed and
many images tell better what is usual. A few hundred are enough.

With `online` the features come from the passes that train and from the validation pass of the
weights that are kept. They cost nothing, but only images that the method trains on are among them,
BatchNorm is in training mode, the weights still move, and with averaged weights they are those of
the raw ones.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from segconf.config.schema import ExperimentConfig
from segconf.data.cases import Case
from segconf.data.preprocessing import read_input
from segconf.data.splits import Split
from segconf.data.training_set import TrainingStep
from segconf.data.transforms import normalize
from segconf.images.resizing import slices_on_grid
from segconf.images.types import ByteArray
from segconf.models.encoders import encoder_normalization
from segconf.ood.detector import pooled_features, stranger_grid
from segconf.processes import Ranks
from segconf.training.step import in_mode

SWEPT_IMAGES = 512
"""Training images that are looked at; more of them hardly tell strangers better."""


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
    cases: Sequence[Case],
    config: ExperimentConfig,
    ranks: Ranks,
    on_image: Callable[[int, int], None],
) -> Tensor | None:
    """Features (N, F) of cases in evaluation mode; None without an encoder.

    The files are read as `predict` reads them: the cache of the training decodes JPEGs at a reduced
    size, and has a coarser grid than the one on which strangers are looked for.

    Args:
        model: the network, the same on every rank.
        cases: of all ranks; each one looks at its part.
        config: how files are read.
        ranks: the processes that share the images.
        on_image: called on the first rank with how many images of it are done, and how many it has.
    """
    encoder = getattr(model, "encoder", None)
    if encoder is None:
        return None
    files: dict[Path, list[int]] = {}
    rows = range(len(cases))[ranks.own(len(cases))]
    for row in rows:
        files.setdefault(cases[row].image_path, []).append(row)
    found: dict[int, Tensor] = {}
    device = next(model.parameters()).device
    mean, std = encoder_normalization(config.model.encoder, config.model.channels)
    with in_mode(model, training=False), torch.no_grad():
        for path, slices in _read_ahead(list(files), partial(_slices, config=config)):
            for row in files[path]:
                index = cases[row].slice_index or 0
                inputs = normalize(slices[index : index + 1], mean=mean, std=std)
                found[row] = pooled_features(encoder(inputs.to(device)))[0].cpu()
            if ranks.is_first:
                on_image(len(found), len(rows))
    return in_order(found, ranks)


def _slices(path: Path, *, config: ExperimentConfig) -> ByteArray:
    """Slices (D, h, w, C) of a file on the grid of the stranger score."""
    return slices_on_grid(read_input(path, config).pixels, stranger_grid(config.data.size))


def _read_ahead(
    paths: Sequence[Path], read: Callable[[Path], ByteArray]
) -> Iterator[tuple[Path, ByteArray]]:
    """Files with their content, in order; the next one is read while this one is looked at."""
    with ThreadPoolExecutor(1) as pool:
        reading = [pool.submit(read, path) for path in paths[:1]]
        for number, path in enumerate(paths, 1):
            content = reading.pop().result()
            reading = [pool.submit(read, following) for following in paths[number : number + 1]]
            yield path, content


def described_cases(split: Split) -> dict[str, Sequence[Case]]:
    """What a sweep looks at, by its label: some training images and all validation images."""
    training = sorted((*split.labeled, *split.unlabeled), key=lambda case: case.id)
    return {
        "features of training images": spread(training, SWEPT_IMAGES),
        "features of validation images": split.validation,
    }


def spread(cases: Sequence[Case], most: int) -> Sequence[Case]:
    """At most that many cases, evenly spread over all of them."""
    count = min(most, len(cases))
    return [cases[number * len(cases) // count] for number in range(count)]


def in_order(own: dict[int, Tensor], ranks: Ranks) -> Tensor | None:
    """Rows of all ranks by their number, stacked; None where there are none."""
    every = {number: row for part in ranks.collect(own) for number, row in part.items()}
    return torch.stack([every[number] for number in sorted(every)]) if every else None


def _cases(step: TrainingStep) -> Tensor:
    if step.unlabeled is None:
        return step.labeled.cases
    return torch.cat([step.labeled.cases, step.unlabeled.cases])
