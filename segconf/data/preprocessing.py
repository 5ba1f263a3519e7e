"""Pictures decoded and resized once, into memory-mapped uint8 arrays beside the data set.

The name of an array holds a fingerprint of the files it was made from, so a changed, added or
removed file leads to another array. An array gets its name only when it is complete: what an
interrupted or a second, simultaneous preparation leaves behind is never taken for one.
"""

from dataclasses import dataclass
from pathlib import Path

from segconf.config.schema import ExperimentConfig
from segconf.images.io import read_image
from segconf.images.types import DEFAULT_MAX_PIXELS, Image


@dataclass(frozen=True, slots=True)
class Grid:
    """How files become pixels: everything beside the files that decides the content."""

    size: tuple[int, int]
    channels: int = 3
    classes: int = 2
    ignore_255: bool = False
    intensity_window: tuple[float, float] | None = None
    max_pixels: int = DEFAULT_MAX_PIXELS

    @classmethod
    def of(cls, config: ExperimentConfig) -> "Grid":
        """The grid of an experiment."""
        return cls(
            config.data.size,
            channels=config.model.channels,
            classes=config.model.classes,
            ignore_255=config.data.ignore_255,
            intensity_window=config.data.intensity_window,
            max_pixels=config.data.max_pixels,
        )


def read_input(path: Path, config: ExperimentConfig) -> Image:
    """Pixels of a file with the channels, the window and the limit of an experiment."""
    return read_image(
        path,
        channels=config.model.channels,
        max_pixels=config.data.max_pixels,
        window=config.data.intensity_window,
    )
