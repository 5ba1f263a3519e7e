"""The images of a run, found again: training cases, and cases with masks on the grid."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.config.schema import ExperimentConfig
from segconf.data.cache import PixelCache, Pixels, Progress
from segconf.data.cases import Case, ImageCases, raise_problems
from segconf.data.datasets.dataset import FindOptions, dataset_folder, find_cases
from segconf.data.preprocessing import Preprocessing
from segconf.errors import DataError
from segconf.outputs import check_output
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder


def training_cases(
    config: ExperimentConfig, run_data: RunData, data: Path | None
) -> tuple[Path, list[Case]]:
    """Where the data set of a run lies, and its training images, labeled or not, by id."""
    where = data or (Path(run_data.data) if run_data.data is not None else None)
    options = FindOptions.of(config.data)
    found = run_data.arranged(find_cases(run_data.dataset, where, options=options))
    by_id = {case.id: case for case in found.training}
    ids = run_data.training_ids()
    missing = [id_ for id_ in ids if id_ not in by_id]
    if missing:
        raise DataError(
            f"{found.root}: {len(missing)} training images of the run are gone, such as "
            f"{missing[0]}. Name the folder that holds them now."
        )
    return found.root, [by_id[id_] for id_ in ids]


def check_report(
    out: Path | None,
    run: RunFolder,
    *,
    data: Path | None = None,
    known: Sequence[str] = (),
    inputs: Sequence[Path] = (),
    mark: str = "",
) -> None:
    """Refuse a folder for a report about a run that could overwrite something, before any work.

    Args:
        out: the folder; None is one in the run, which knows where.
        run: what the report is about; a report may lie in its `evaluation/`.
        data: where the data set lies, if it has moved since.
        known: names of the files of the report.
        inputs: what else is read.
        mark: see `check_output`.
    """
    if out is None:
        return
    root = _data_folder(run.data(), data)
    folders: tuple[Path, ...] = ()
    if out.resolve().is_relative_to(root.resolve()):
        folders = find_cases(run.data().dataset, root).folders()
    within = run.path / "evaluation"
    check_output(out, inputs=[run.path, *folders, *inputs], within=within, known=known, mark=mark)


def _data_folder(used: RunData, data: Path | None) -> Path:
    """Where the data set of a run lies."""
    where = data or (Path(used.data) if used.data else None)
    return dataset_folder(used.dataset, where)


BATCH = 16
MOST_LABELS = 256
_USUAL_PIXELS = 192 * 256


def batch_size(config: ExperimentConfig) -> int:
    """Images that a network sees at once; of labels more where the images are small."""
    if config.data.task == "segmentation":
        return BATCH
    height, width = config.data.size
    return max(BATCH, min(MOST_LABELS, BATCH * _USUAL_PIXELS // (height * width)))


def masked_cases(run: RunFolder, split: str, data: Path | None) -> tuple[tuple[Case, ...], Path]:
    """Cases with masks or labels of a split, and the folder of the data set.

    Args:
        run: the run whose data set it is.
        split: test or val.
        data: where the data set lies, if it has moved since.
    """
    config, used = run.config(), run.data()
    options = FindOptions.of(config.data)
    where = data or (Path(used.data) if used.data else None)
    found = used.arranged(find_cases(used.dataset, where, options=options))
    raise_problems(found.problems, found.root)
    part = found.test if split == "test" else found.validation
    cases = tuple(case for case in part if case.is_labeled)
    if not cases:
        other = "val" if split == "test" else "test"
        kind = "masks" if found.task == "segmentation" else "labels"
        raise DataError(
            f"{found.root}: no {split} images with {kind}. Name another folder of the data "
            f"set, or use the split {other}."
        )
    return cases, found.root


def whole_images(
    images: Sequence[ImageCases], batches: Iterable[tuple[NDArray[Any], NDArray[Any]]]
) -> Iterator[tuple[ImageCases, NDArray[Any], NDArray[Any]]]:
    """Gather what comes in batches of cases by image.

    Args:
        images: in the order of the batches.
        batches: two arrays each, such as logits (B, K, h, w) and masks (B, h, w), of the cases of
            all images, one after another.

    Yields:
        An image and its parts of both arrays, (D, K, h, w) and (D, h, w).
    """
    cases = (pair for first, second in batches for pair in zip(first, second, strict=True))
    for image in images:
        own = [next(cases) for _ in image.cases]
        yield image, np.stack([one for one, _ in own]), np.stack([one for _, one in own])


@dataclass(frozen=True)
class GridCases:
    """Cases with masks or labels, decoded on the network's grid when they are first needed.

    Attributes:
        cases: all have a mask or a label.
        root: folder of the data set.
        config: of the run.
        label: what they are called while they are decoded.
        on_progress: is told how many are.
    """

    cases: Sequence[Case]
    root: Path
    config: ExperimentConfig
    label: str
    on_progress: Progress | None = None

    def batches(self) -> Iterator[tuple[Pixels, Pixels]]:
        """Images (B, h, w, C) and masks (B, h, w), or labels (B, 1, 1), in the order of cases."""
        size = batch_size(self.config)
        for start in range(0, len(self.cases), size):
            batch = slice(start, start + size)
            yield np.array(self._images[batch]), np.array(self._masks[batch])

    @cached_property
    def _cache(self) -> PixelCache:
        return PixelCache(self.root, Preprocessing.of(self.config), on_progress=self.on_progress)

    @cached_property
    def _images(self) -> Pixels:
        return self._cache.images(self.cases, label=self.label)

    @cached_property
    def _masks(self) -> Pixels:
        return self._cache.masks(self.cases, label=self.label)
