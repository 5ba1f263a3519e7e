"""Images that may be queried, and the list of those to annotate."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from segconf.confidence import FloatArray
from segconf.config.schema import ExperimentConfig
from segconf.csv_tables import read_table, table_text
from segconf.data.cache import PixelCache, Pixels, Progress
from segconf.data.cases import Case, images_of, pair_folder, raise_problems
from segconf.data.label_tables import TABLE, matched_labels, read_label_table
from segconf.data.labeled_parts import list_images
from segconf.data.preprocessing import Preprocessing
from segconf.data.splits import label_unit
from segconf.errors import DataError
from segconf.files import write_text
from segconf.images.encoding import write_png
from segconf.inference.torch_model import TorchModel
from segconf.outputs import check_output_file
from segconf.overlays.contact_sheet import Tile, contact_sheet
from segconf.overlays.overlay import as_fraction
from segconf.results.maps import Maps
from segconf.runs.run_cases import training_cases
from segconf.runs.run_folder import RunFolder

BATCH = 16


@dataclass(frozen=True, slots=True)
class Pool:
    """Cases and their pixels."""

    cases: tuple[Case, ...]
    pixels: Pixels  # (M, h, w, C), M >= N: those of other cases may be among them
    rows: tuple[int, ...]  # (N,) where the pixels of each case are

    @property
    def unit(self) -> str:
        """What is asked for: whole groups where one holds several cases, else images."""
        return label_unit(self.cases)

    def units(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the cases of each group, or of each image; never a part of a volume."""
        found: dict[str, list[int]] = {}
        for number, case in enumerate(self.cases):
            found.setdefault(case.group, []).append(number)
        return tuple(tuple(numbers) for numbers in found.values())

    def without(self, ids: Collection[str]) -> "Pool":
        """The pool without these cases."""
        kept = [number for number, case in enumerate(self.cases) if case.id not in ids]
        cases = tuple(self.cases[number] for number in kept)
        return replace(self, cases=cases, rows=tuple(self.rows[number] for number in kept))

    def images(self, numbers: Sequence[int]) -> list[list[int]]:
        """Numbers of cases by image: those of a volume together, in the order of its slices."""
        own = {self.cases[number].id: number for number in numbers}
        chosen = images_of([self.cases[number] for number in numbers])
        return [[own[case.id] for case in image.cases] for image in chosen]

    def name(self, numbers: Sequence[int]) -> str:
        """What a unit is called: its image, or its group where that holds several images."""
        images = images_of([self.cases[number] for number in numbers])
        return images[0].name if len(images) == 1 else images[0].group

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


def folder_pool(
    folder: Path, config: ExperimentConfig, *, on_progress: Progress | None = None
) -> Pool:
    """The images of a folder; of one with `images/` and `masks/`, those without a mask.

    For labels, those of `images/` without one in `labels.csv`.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. The pool is a folder of images.")
    has_labels = config.data.task == "classification"
    cases = _unlabeled(folder) if has_labels else _without_masks(folder)
    if not cases:
        kind = "label" if has_labels else "mask"
        raise DataError(f"{folder}: every image has a {kind}. The pool holds images to annotate.")
    cache = PixelCache(folder, Preprocessing.of(config), on_progress=on_progress)
    return Pool(cases, cache.images(cases, label="pool"), tuple(range(len(cases))))


def _without_masks(folder: Path) -> tuple[Case, ...]:
    images = folder / "images"
    found = pair_folder(images, folder / "masks") if images.is_dir() else pair_folder(folder, None)
    raise_problems(found.problems, folder)
    return tuple(case for case in found.cases if not case.is_labeled)


def _unlabeled(folder: Path) -> tuple[Case, ...]:
    images = folder / "images"
    listing = list_images(images if images.is_dir() else folder, groups=folder)
    problems = list(listing.problems)
    labels: Mapping[str, str] = {}
    if images.is_dir() and (folder / TABLE).is_file():
        table = read_label_table(folder / TABLE)
        labels, mistakes = matched_labels(table, list(listing.cases), complete=False)
        problems += [*table.problems, *mistakes]
    raise_problems(problems, folder)
    return tuple(case for name, case in listing.cases.items() if name not in labels)


COLUMNS = ("rank", "id", "group", "score", "reason", "run")


@dataclass(frozen=True, slots=True)
class Choice:
    """What to annotate: an image, or all images of a group.

    Attributes:
        id: name of the image, or of the group.
        score: by which it was ranked.
        reason: why it was chosen.
        numbers: of its cases in the pool.
    """

    id: str
    score: float
    reason: str
    numbers: tuple[int, ...]

    @property
    def shown(self) -> int:
        """Number of the case that stands for all of them: the middle one."""
        return self.numbers[len(self.numbers) // 2]


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """The images to annotate in their order, the pool they are from, and what to know about it.

    Attributes:
        run: that was asked.
        pool: what was to choose from.
        choices: in the order of their ranks.
        notes: for a person.
        model: gives the network of the run, loaded once for ranking and pictures.
    """

    run: Path
    pool: Pool
    choices: tuple[Choice, ...]
    notes: tuple[str, ...]
    model: Callable[[], TorchModel]

    @property
    def has_labels(self) -> bool:
        """Whether images get labels, not masks."""
        return RunFolder(self.run).config().data.task == "classification"


def check_queue(path: Path, run: Path, *, inputs: Iterable[Path] = ()) -> None:
    """Refuse a place for a list and its contact sheet that would overwrite something else.

    Args:
        path: of the list, `.csv`; a sheet of the same name with `.png` belongs to it.
        run: that is asked.
        inputs: what else is read.

    Raises:
        FileError: one of the two lies in an input, or is there and no list.
    """
    read = (run, *inputs)
    check_output_file(path, inputs=read, is_own=_is_queue)
    sheet = path.with_suffix(".png")
    check_output_file(sheet, inputs=read, is_own=lambda _sheet: _is_queue(path))


def _is_queue(path: Path) -> bool:
    try:
        read_table(path, COLUMNS, error=DataError, way_out="")
    except DataError:
        return False
    return True


def write_queue(queue: Queue, path: Path) -> None:
    """Write the list that annotators work off, and `segconf train` reads: a line per image."""
    run, cases = _relative(queue.run, path.parent), queue.pool.cases
    rows = [
        [rank, image.name, image.group, f"{choice.score:.6g}", choice.reason, run]
        for rank, choice in enumerate(queue.choices, start=1)
        for image in images_of([cases[number] for number in choice.numbers])
    ]
    write_text(path, table_text(COLUMNS, rows))


def _relative(run: Path, folder: Path) -> str:
    """The run as seen from the list, so that both can move together."""
    try:
        return Path(os.path.relpath(run.absolute(), folder.absolute())).as_posix()
    except ValueError:  # another drive
        return run.absolute().as_posix()


SHOWN = 120
"""Images on a sheet, the first of the queue: more would not be looked at."""


def write_contact_sheet(queue: Queue, path: Path, *, on_progress: Progress | None = None) -> bool:
    """Write the chosen images on the grid of the network, in their order.

    Masks are drawn as overlays, labels are written below. Rows of a table have no picture.

    Returns:
        Whether there is a sheet.
    """
    model, choices = queue.model(), queue.choices[:SHOWN]
    if model.config.has_table:
        return False
    tiles: list[Tile] = []
    for pixels in queue.pool.batches([choice.shown for choice in choices]):
        for image, logits in zip(pixels, model.grid_logits(pixels), strict=True):
            rank, choice = len(tiles) + 1, choices[len(tiles)]
            tiles.append(_tile(model, image, logits, f"{rank}.  {choice.id}", choice.reason))
        if on_progress is not None:
            on_progress("contact sheet", len(tiles), len(choices))
    write_png(path, contact_sheet(tiles, scale=model.scale))
    return True


def _tile(model: TorchModel, image: Pixels, logits: FloatArray, title: str, reason: str) -> Tile:
    """A picture (h, w, C) with what is predicted from its logits (K, h, w)."""
    words = reason.partition(",")[0].replace(" in review", "")
    picture = np.moveaxis(image, -1, 0)
    if names := model.config.data.class_names:
        return Tile(picture, None, None, title, f"{names[int(logits.argmax())]}: {words}")
    maps = Maps.of_grid(logits[None])
    return Tile(picture, maps.mask[0], as_fraction(maps.levels[0]), title, words)
