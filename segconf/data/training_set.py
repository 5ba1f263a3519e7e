"""Batches for training and evaluation, made from the cached arrays."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from segconf.config.schema import AugmentationConfig
from segconf.conventions import IGNORE
from segconf.data.cache import PixelCache, Pixels
from segconf.data.cases import BrokenDataError, raise_problems
from segconf.data.splits import Split
from segconf.data.transforms import normalize
from segconf.data.views import Rows, Views
from segconf.devices import usable_processors

_HASHED_ROWS = 64


@dataclass(frozen=True, slots=True)
class Batch:
    """Unaugmented views of some cases: the pixel (i, j) is the same place in every epoch."""

    cases: Tensor  # (B,) numbers of the cases: slots of the history, or rows of the arrays
    images: Tensor  # (B, C, H, W) float32, normalised
    masks: Tensor | None  # (B, H, W) uint8, labels (B, 1, 1); None for unlabeled cases
    flips: Tensor | None = None  # (B, 2) bool: images flipped upside down, left to right; or none


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What one step of the optimizer sees."""

    augmented_images: Tensor  # (B, C, H, W)
    augmented_masks: Tensor  # (B, H, W) int64, 255 = ignore
    labeled: Batch
    unlabeled: Batch | None


@dataclass(frozen=True, slots=True)
class TrainingPixels:
    """Decoded training and validation images. Masks of unlabeled images are not among them."""

    images: Pixels  # (N, H, W, C) labeled and unlabeled, in the order of their ids
    labeled_rows: Rows  # (L,)
    unlabeled_rows: Rows  # (U,)
    labeled_masks: Pixels  # (L, H, W) in the order of labeled_rows
    validation_images: Pixels  # (V, H, W, C)
    validation_masks: Pixels  # (V, H, W)

    def hashes(self) -> dict[str, str]:
        """SHA-256 of everything that a run is trained and validated on, by kind."""
        arrays = {
            "training images": self.images,
            "training masks": self.labeled_masks,
            "validation images": self.validation_images,
            "validation masks": self.validation_masks,
        }
        return {kind: _hash(pixels) for kind, pixels in arrays.items()}

    def restricted(self, own: slice, *, use_unlabeled: bool) -> "TrainingPixels":
        """The training images of one process, with or without the unlabeled ones."""
        unlabeled = self.unlabeled_rows if use_unlabeled else self.unlabeled_rows[:0]
        return replace(
            self,
            labeled_rows=self.labeled_rows[own],
            labeled_masks=self.labeled_masks[own],
            unlabeled_rows=unlabeled[own],
        )

    @property
    def rows(self) -> Rows:
        """Rows of all training images, ascending; a position in it is a slot of the history."""
        return np.sort(np.concatenate([self.labeled_rows, self.unlabeled_rows]))


@dataclass(frozen=True, slots=True)
class Normalization:
    """Mean and standard deviation per channel that the encoder expects, for pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def prepare_training(
    cache: PixelCache, split: Split, *, problems: Sequence[str] = ()
) -> TrainingPixels:
    """Decode everything a training run reads; all broken files are reported in one message.

    Validation images without a mask or label, which are held out with their group, are left out.
    """
    labeled_ids = {case.id for case in split.labeled}
    training = sorted((*split.labeled, *split.unlabeled), key=lambda case: case.id)
    rows = np.arange(len(training))
    is_labeled = np.array([case.id in labeled_ids for case in training], dtype=bool)
    labeled = [case for case in training if case.id in labeled_ids]
    validation = [case for case in split.validation if case.is_labeled]
    arrays: dict[str, Pixels] = {}
    found = list(problems)
    for label, cases in {"training": training, "validation": validation}.items():
        with_masks = labeled if label == "training" else cases
        for kind, read, wanted in (
            ("images", cache.images, cases),
            ("masks", cache.masks, with_masks),
        ):
            try:
                arrays[f"{label} {kind}"] = read(wanted, label=label)
            except BrokenDataError as error:
                found += error.problems
    raise_problems(found, cache.root)
    return TrainingPixels(
        images=arrays["training images"],
        labeled_rows=rows[is_labeled],
        unlabeled_rows=rows[~is_labeled],
        labeled_masks=arrays["training masks"],
        validation_images=arrays["validation images"],
        validation_masks=arrays["validation masks"],
    )


class TrainingDataset(Dataset[TrainingStep]):
    """The steps of one epoch; a step can be made in any process, in any order.

    An epoch is one pass over the unlabeled images while the labeled ones start again as often as
    needed, each time in a new order. Without unlabeled images it is one pass over the labeled ones.
    """

    def __init__(
        self,
        pixels: TrainingPixels,
        *,
        steps: int,
        batch_labeled: int,
        augmentation: AugmentationConfig,
        normalization: Normalization,
        seed: int,
    ) -> None:
        """Draw the order of the first epoch; `start_epoch` draws that of another.

        Args:
            pixels: the images to train on.
            steps: over how many steps the pass is spread, evenly.
            batch_labeled: labeled images in a step, where there are unlabeled ones as well.
            augmentation: random views of the labeled images.
            normalization: what the encoder expects.
            seed: decides order and views.
        """
        self._pixels = pixels
        self._steps = steps
        self._batch_labeled = min(batch_labeled, len(pixels.labeled_rows))
        self._normalization = normalization
        self._seed = seed
        self._rows = pixels.rows
        height, width = pixels.images.shape[1:3]
        mask_height, mask_width = pixels.labeled_masks.shape[1:]
        self._random = Views(
            (height, width), augmentation, mask_size=(mask_height, mask_width), seed=seed
        )
        self.start_epoch(0)

    def start_epoch(self, epoch: int) -> None:
        """Draw the steps of an epoch; they depend on the seed and the epoch alone."""
        self._epoch = epoch
        generator = np.random.default_rng([self._seed, epoch])
        labeled, unlabeled = len(self._pixels.labeled_rows), len(self._pixels.unlabeled_rows)
        # Even parts instead of a small last batch, whose BatchNorm statistics would be poor.
        parts = np.array_split(generator.permutation(unlabeled or labeled), self._steps)
        if unlabeled:
            stream = _endless(labeled, generator)
            self._plan = [
                (np.fromiter(islice(stream, self._batch_labeled), np.int64), part) for part in parts
            ]
        else:
            self._plan = [(part, part[:0]) for part in parts]

    def __len__(self) -> int:
        return len(self._plan)

    def __getitem__(self, step: int) -> TrainingStep:
        chosen, unlabeled = self._plan[step]
        rows, masks = self._pixels.labeled_rows[chosen], self._pixels.labeled_masks[chosen]
        images = self._pixels.images[rows]  # (B, H, W, C)
        views, view_masks = self._random.augmented(images, masks, epoch=self._epoch, step=step)
        return TrainingStep(
            augmented_images=self._normalized(views),
            augmented_masks=torch.from_numpy(view_masks).long(),
            labeled=self._views(rows, images, torch.from_numpy(masks), step),
            unlabeled=self._unlabeled_batch(unlabeled, step) if len(unlabeled) else None,
        )

    def _unlabeled_batch(self, chosen: Rows, step: int) -> Batch:
        rows = self._pixels.unlabeled_rows[chosen]
        return self._views(rows, self._pixels.images[rows], None, step)

    def _views(self, rows: Rows, images: Pixels, masks: Tensor | None, step: int) -> Batch:
        """Views for the history: unaugmented, or flipped with other colours; masks stay."""
        views, flips = self._random.recorded(images, rows, epoch=self._epoch, step=step)
        undo = None if flips is None else torch.from_numpy(flips)
        return Batch(self._slots(rows), self._normalized(views), masks, undo)

    def _slots(self, rows: Rows) -> Tensor:
        return torch.from_numpy(np.searchsorted(self._rows, rows))

    def _normalized(self, images: Pixels) -> Tensor:
        return normalize(images, mean=self._normalization.mean, std=self._normalization.std)


class CaseDataset(Dataset[Batch]):
    """Unaugmented views of a list of cases with their masks, in batches, in order."""

    def __init__(
        self, images: Pixels, masks: Pixels, *, batch_size: int, normalization: Normalization
    ) -> None:
        """Keep the arrays; (N, H, W, C) and (N, H, W)."""
        self._images = images
        self._masks = masks
        self._batch_size = batch_size
        self._normalization = normalization

    def __len__(self) -> int:
        return math.ceil(len(self._images) / self._batch_size)

    def __getitem__(self, batch: int) -> Batch:
        if not 0 <= batch < len(self):
            raise IndexError(batch)
        rows = np.arange(len(self._images))[batch * self._batch_size :][: self._batch_size]
        images = normalize(
            self._images[rows], mean=self._normalization.mean, std=self._normalization.std
        )
        return Batch(torch.from_numpy(rows), images, torch.from_numpy(self._masks[rows]))


def training_batches(
    pixels: TrainingPixels, batch_size: int, normalization: Normalization
) -> Iterator[Batch]:
    """Unaugmented views of all training images in order; unlabeled ones have all-ignore masks."""
    mean, std = normalization.mean, normalization.std
    for start in range(0, len(pixels.rows), batch_size):
        rows = pixels.rows[start : start + batch_size]
        masks = np.full((len(rows), *pixels.labeled_masks.shape[1:]), IGNORE, np.uint8)
        labeled = np.isin(rows, pixels.labeled_rows)
        masks[labeled] = pixels.labeled_masks[np.searchsorted(pixels.labeled_rows, rows[labeled])]
        images = normalize(pixels.images[rows], mean=mean, std=std)
        slots = torch.arange(start, start + len(rows))
        yield Batch(slots, images, torch.from_numpy(masks))


def build_loader(dataset: Dataset[Any], *, workers: int) -> DataLoader[Any]:
    """Loader over a data set that already yields batches."""
    # More workers than processors only wait for each other, and PyTorch warns of them.
    workers = min(workers, usable_processors())
    return DataLoader(dataset, batch_size=None, shuffle=False, num_workers=workers)


def _hash(pixels: Pixels) -> str:
    """SHA-256 of the shape and the content, a few rows at a time."""
    digest = hashlib.sha256(str(pixels.shape).encode())
    for start in range(0, len(pixels), _HASHED_ROWS):
        digest.update(np.ascontiguousarray(pixels[start : start + _HASHED_ROWS]).data)
    return digest.hexdigest()


def _endless(count: int, generator: np.random.Generator) -> Iterator[int]:
    """Every number below `count` once, then again in another order, and so on."""
    while True:
        yield from generator.permutation(count).tolist()
