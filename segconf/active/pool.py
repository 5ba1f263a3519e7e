"""Images that may be asked for, decoded on the grid of the network."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from segconf.data.cache import PixelCache, Pixels, Progress
from segconf.data.cases import Case, pair_folder, raise_problems
from segconf.data.preprocessing import Preprocessing
from segconf.errors import DataError
from segconf.runs.run_cases import training_cases
from segconf.runs.run_folder import RunFolder

BATCH = 16


@dataclass(frozen=True, slots=True)
class Pool:
    """Cases and their pixels."""

    cases: tuple[Case, ...]
    pixels: Pixels  # (M, h, w, C), M >= N: those of other cases may be among them
    rows: tuple[int, ...]  # (N,) where the pixels of each case are

    def batches(self, numbers: Sequence[int]) -> Iterator[Pixels]:
        """Pixels (B, h, w, C) of the cases with these numbers."""
        for start in range(0, len(numbers), BATCH):
            rows = [self.rows[number] for number in numbers[start : start + BATCH]]
            yield np.asarray(self.pixels[rows])


def run_pool(
    run: RunFolder,
    role: Literal["labeled", "unlabeled"],
    *,
    data: Path | None = None,
    on_progress: Progress | None = None,
) -> Pool:
    """The labeled or the unlabeled images of a run.

    Args:
        run: the run folder.
        role: which.
        data: where the data set lies now; where it lay during the training when not given.
        on_progress: is told how many images are decoded, if they are no longer in the cache.
    """
    config, used = run.config(), run.data()
    root, cases = training_cases(config, used, data)
    cache = PixelCache(root, Preprocessing.of(config), on_progress=on_progress)
    # All training images, as the training decoded them: the array is there already.
    pixels = cache.images(cases, label="training")
    wanted = set(used.ids[role])
    rows = tuple(row for row, case in enumerate(cases) if case.id in wanted)
    if not rows:
        raise DataError(
            f"{run.path}: no {role} images in this run. Give a folder of images as the pool."
        )
    return Pool(tuple(cases[row] for row in rows), pixels, rows)


def folder_pool(folder: Path, grid: Preprocessing, *, on_progress: Progress | None = None) -> Pool:
    """The images of a folder; of one with `images/` and `masks/`, those without a mask."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. The pool is a folder of images.")
    images = folder / "images"
    found = pair_folder(images, folder / "masks") if images.is_dir() else pair_folder(folder, None)
    raise_problems(found.problems, folder)
    cases = tuple(case for case in found.cases if case.mask_path is None)
    if not cases:
        raise DataError(f"{folder}: every image has a mask. The pool holds images to annotate.")
    pixels = PixelCache(folder, grid, on_progress=on_progress).images(cases, label="pool")
    return Pool(cases, pixels, tuple(range(len(cases))))
