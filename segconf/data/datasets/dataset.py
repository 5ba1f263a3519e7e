"""The interface of a data set, and how a name or a folder becomes one."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from segconf.config.ranges import Task
from segconf.config.schema import DataConfig
from segconf.data.archives import Archive
from segconf.data.cases import CaseSet
from segconf.errors import ConfigError, DataError
from segconf.registry import DATASETS, Registry

OnCount = Callable[[int, int], None]
"""Called with how many images are made, and how many there will be."""


@dataclass(frozen=True, slots=True)
class FindOptions:
    """What is wanted of a data set.

    Attributes:
        validation: fraction taken from a training folder that comes without its own `val/`.
        test: the same for `test/`.
        task: what the cases are for; found by the data set itself when not given.
        labels: table of labels that does not lie beside the images.
        class_names: in the order of their numbers; those that occur, sorted, when not given.
    """

    validation: float = 0.15
    test: float = 0.15
    task: Task | None = None
    labels: Path | None = None
    class_names: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: DataConfig) -> Self:
        """What an experiment wants. A task that was not set is left to the data set."""
        return cls(
            config.validation_fraction,
            config.test_fraction,
            task=config.task if "task" in config.model_fields_set else None,
            labels=config.labels,
            class_names=config.class_names,
        )


class Dataset(ABC):
    """Images and their masks or labels by part.

    A data set has a name and a folder of its own, or it is a layout: then any folder that it
    recognizes can be given instead of a name.
    """

    name: ClassVar[str]
    tasks: ClassVar[tuple[Task, ...]] = ("segmentation",)
    """What it can be used for; the first one where nothing else is asked for."""
    default_folder: ClassVar[Path | None] = None
    """Where the data set lies when no folder is named; None for a layout."""
    variable: ClassVar[str | None] = None
    """Environment variable that names the folder instead."""
    archives: ClassVar[tuple[Archive, ...]] = ()
    """What `segconf data NAME --download` fetches."""

    @abstractmethod
    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """List and pair the files below a folder; no picture is opened.

        Raises:
            DataError: there is no such data set in the folder.
        """

    def recognizes(self, root: Path) -> bool:  # noqa: ARG002 - for layouts to override
        """Whether a folder has the layout of this data set."""
        return False

    def prepare(self, root: Path, on_progress: OnCount | None = None) -> None:  # noqa: B027
        """Make what is not there yet; most data sets are made by others."""

    def folder(self, data: Path | None) -> Path:
        """Where the data set lies: the given folder, the environment, the default."""
        if data is not None:
            return data
        if self.variable and os.environ.get(self.variable):
            return Path(os.environ[self.variable])
        if self.default_folder is None:
            raise DataError(f"{self.name}: a layout of folders, not a data set. Give a folder.")
        return self.default_folder


datasets: Registry[Dataset] = DATASETS
register = datasets.register


def named_datasets() -> tuple[str, ...]:
    """Names of the data sets that have a folder of their own."""
    names = datasets.names()
    return tuple(name for name in names if datasets.get(name).default_folder is not None)


def is_named(dataset: str) -> bool:
    """Whether this is the name of a data set, not a folder."""
    return dataset in datasets.names() and datasets.get(dataset).default_folder is not None


def dataset_key(dataset: str) -> str:
    """How a run remembers its data set: a name, or the absolute path of a folder."""
    return dataset if is_named(dataset) else str(Path(dataset).absolute())


def dataset_folder(dataset: str, data: Path | None) -> Path:
    """Where a data set lies: by its name, the folder itself, or where that folder is now."""
    if is_named(dataset):
        return datasets.get(dataset).folder(data)
    return Path(dataset) if data is None else data


def check_one_folder(dataset: str, data: Path | None) -> None:
    """Refuse a folder as the data set and another one as the place where it lies.

    Raises:
        ConfigError: both are given.
    """
    if data is not None and not is_named(dataset):
        raise ConfigError(f"data = {data}: the data set is the folder {dataset}. Give one of both.")


def find_cases(
    dataset: str, data: Path | None = None, *, options: FindOptions | None = None
) -> CaseSet:
    """Cases of a data set by part. Files are listed and paired; pictures are not yet opened.

    Args:
        dataset: name of a data set, or a folder.
        data: folder of a named data set.
        options: the task, and what is held out where a folder has no `val/` or `test/`.

    Raises:
        DataError: there is no such data set, or it is none for the task.
    """
    root = dataset_folder(dataset, data)
    options = options or FindOptions()
    if is_named(dataset):
        named = datasets.get(dataset)
        if options.task not in (None, *named.tasks):
            raise DataError(f"data.task = {options.task}: {dataset} is for {named.tasks[0]} only.")
        return named.find(root, options)
    layouts = [datasets.get(name) for name in datasets.names() if not is_named(name)]
    fitting = [layout for layout in layouts if layout.recognizes(root)]
    # A folder with masks and labels is one for segmentation, unless labels are asked for.
    for layout in sorted(fitting, key=lambda one: one.tasks[0], reverse=True):
        if options.task in (None, *layout.tasks):
            return layout.find(root, options)
    if fitting:
        raise DataError(
            f"{root}: data.task = {options.task}, but this is a folder for "
            f"{fitting[0].tasks[0]}. Leave data.task out, or give another folder."
        )
    raise DataError(_not_a_dataset(root))


def prepare_dataset(dataset: str, data: Path | None, on_progress: OnCount | None = None) -> None:
    """Let a named data set make its images where they are not there yet."""
    if is_named(dataset):
        datasets.get(dataset).prepare(dataset_folder(dataset, data), on_progress)


def _not_a_dataset(root: Path) -> str:
    names = ", ".join(f"`{name}`" for name in named_datasets())
    way_out = (
        f"Expected {names}, or a folder with images/ and masks/. For classification: a folder with "
        "images/ and labels.csv, with train/CLASS/, or a .csv table."
    )
    if not root.exists():
        return f"{root}: no such folder or data set. {way_out}"
    if not root.is_dir():
        return f"{root}: a file. {way_out}"
    if any(root.glob("ISIC-2017_*")):
        return (
            f"{root}: this folder has the layout of the ISIC 2017 archives. "
            f"Give the data set isic, with this folder as its data."
        )
    found = sorted(path.name for path in root.iterdir())[:5]
    return f"{root}: has no images/ folder (it holds {', '.join(found) or 'nothing'}). {way_out}"
