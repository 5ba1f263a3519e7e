"""From files to pixels: grid, channels, classes and intensity window of an experiment."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segconf.config.ranges import Task
from segconf.config.schema import ExperimentConfig
from segconf.data.cifar_files import SUFFIX, record_images
from segconf.errors import DataError
from segconf.images.io import read_image
from segconf.images.types import DEFAULT_MAX_PIXELS, Image


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """How files become pixels: everything beside the files that decides the content."""

    size: tuple[int, int]
    channels: int = 3
    classes: int = 2
    ignore_255: bool = False
    intensity_window: tuple[float, float] | None = None
    max_pixels: int = DEFAULT_MAX_PIXELS
    task: Task = "segmentation"
    columns: tuple[str, ...] = ()
    """Of a table, in the order of the pixels; that of the table when there are none."""

    @classmethod
    def of(cls, config: ExperimentConfig) -> "Preprocessing":
        """The preprocessing of an experiment."""
        return cls(
            config.data.size,
            channels=config.model.channels,
            classes=config.model.classes,
            ignore_255=config.data.ignore_255,
            intensity_window=config.data.intensity_window,
            max_pixels=config.data.max_pixels,
            task=config.data.task,
            columns=config.data.columns,
        )

    def read(self, path: Path, *, size: tuple[int, int] | None = None) -> Image:
        """Pixels of a file, at its native size unless another one is given."""
        if path.suffix == SUFFIX:
            return self._records(path)
        return read_image(
            path,
            channels=self.channels,
            size=size,
            max_pixels=self.max_pixels,
            window=self.intensity_window,
        )

    def _records(self, path: Path) -> Image:
        """All images of a file of records, (C, D, H, W) as if they were slices."""
        pixels = np.moveaxis(record_images(path), -1, 0)
        if self.channels != len(pixels):
            raise DataError(
                f"{path}: model.channels = {self.channels}, but these images have {len(pixels)}."
            )
        return Image(pixels, path)
