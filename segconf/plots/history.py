"""What the history of a run says about one image: the picture beside its maps."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.text import Text
from numpy.typing import NDArray

from segconf.files import replacing

COLOR_MAP = "cividis"
"""Reads the same for colour-blind readers and in grey."""
PANEL_INCHES = 3.6
RGB = 3


def history_picture(
    path: Path, title: str, image: NDArray[np.uint8], maps: Mapping[str, NDArray[np.float32]]
) -> None:
    """Write an image beside its maps, on one scale from 0 to 1 for every image and every run.

    Args:
        path: the picture to write.
        title: shown above the image.
        image: (H, W, C); the first channel is shown in grey unless there are three.
        maps: (H, W) in [0, 1] by their title.
    """
    height, width = image.shape[:2]
    page = _page((height, width), tuple(maps))
    page.title.set_text(title)
    page.image.set_data(image if image.shape[2] == RGB else np.repeat(image[..., :1], RGB, axis=2))
    for artist, values in zip(page.maps, maps.values(), strict=True):
        artist.set_data(values)
    with replacing(path) as temporary:
        page.figure.savefig(temporary, format="png", dpi=100)


class _Page:
    """An empty figure; filling it for image after image is much faster than drawing anew."""

    def __init__(self, size: tuple[int, int], titles: tuple[str, ...]) -> None:
        height, width = size
        panels = 1 + len(titles)
        inches = (PANEL_INCHES * panels + 0.9, PANEL_INCHES * height / width + 0.5)
        self.figure = Figure(figsize=inches, layout="constrained")
        axes: list[Axes] = list(self.figure.subplots(1, panels, squeeze=False)[0])
        self.title: Text = axes[0].set_title(" ", fontsize=10)
        self.image: AxesImage = axes[0].imshow(np.zeros((height, width, RGB), np.uint8))
        self.maps: list[AxesImage] = []
        for panel, title in zip(axes[1:], titles, strict=True):
            panel.set_title(title, fontsize=10)
            empty = np.zeros((height, width))
            self.maps.append(panel.imshow(empty, cmap=COLOR_MAP, norm=Normalize(0, 1)))
        for panel in axes:
            panel.set_axis_off()
        self.figure.colorbar(self.maps[-1], ax=axes, shrink=0.9, pad=0.01)
        # The layout is the same for every image: worked out once, it is left alone.
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")


@cache
def _page(size: tuple[int, int], titles: tuple[str, ...]) -> _Page:
    return _Page(size, titles)
