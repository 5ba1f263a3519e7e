"""Files as a network takes them, at their native size."""

from pathlib import Path

from segconf.config import ExperimentConfig
from segconf.images import Image, read_image


def read_input(path: Path, config: ExperimentConfig) -> Image:
    """Pixels of a file with the channels, the window and the limit of an experiment."""
    return read_image(
        path,
        channels=config.model.channels,
        max_pixels=config.data.max_pixels,
        window=config.data.intensity_window,
    )
