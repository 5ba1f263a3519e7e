"""Pictures in rows: examples with their errors, and an image beside its history maps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

EXAMPLE_INCHES = 1.9


TITLES = ("image, true outline", "predicted mask", "confidence", "errors")


TRUE, PREDICTED, WRONG = "#56B4E9", "#E69F00", (213, 94, 0)
"""Okabe and Ito: told apart with any colour vision."""


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One image, what is true and what was said.

    Attributes:
        name: shown beside it.
        image: (H, W, 3).
        truth: mask, (H, W).
        prediction: mask, (H, W).
        confidence: (H, W) in [0, 1].
    """

    name: str
    image: NDArray[np.uint8]
    truth: NDArray[np.uint8]
    prediction: NDArray[np.uint8]
    confidence: NDArray[np.float32]


def example_figure(examples: Sequence[Example], path: Path) -> None:
    """Write one line of panels per example; confidence is shown from 0.5, a guess, to 1."""
    height, width = examples[0].image.shape[:2]
    inches = (4 * EXAMPLE_INCHES + 0.7, len(examples) * EXAMPLE_INCHES * height / width + 0.25)
    figure = Figure(figsize=inches, layout="constrained")
    grid: NDArray[np.object_] = figure.subplots(len(examples), len(TITLES), squeeze=False)
    for title, axes in zip(TITLES, grid[0], strict=True):
        axes.set_title(title, fontsize=8)
    for example, row in zip(examples, grid, strict=True):
        shown = _draw(example, row)
    figure.colorbar(shown, ax=grid, shrink=0.8, pad=0.01).ax.tick_params(labelsize=7)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=110, pil_kwargs={"optimize": True})


def _draw(example: Example, row: NDArray[np.object_]) -> AxesImage:
    image, mask, confidence, errors = row
    _picture(image, example.image)
    image.contour(example.truth, [0.5], colors=TRUE, linewidths=1)
    _picture(mask, example.image)
    if example.prediction.any():
        mask.contour(example.prediction, [0.5], colors=PREDICTED, linewidths=1)
    shown: AxesImage = confidence.imshow(example.confidence, cmap=COLOR_MAP, norm=Normalize(0.5, 1))
    marked = example.image // 2 + 100
    marked[example.prediction != example.truth] = WRONG
    _picture(errors, marked)
    confidence.set_axis_off()
    image.text(3, 5, example.name, fontsize=6, va="top", color="white")
    return shown


def _picture(axes: Axes, pixels: NDArray[np.uint8]) -> None:
    axes.imshow(pixels)
    axes.set_axis_off()


COLOR_MAP = "cividis_r"
"""Bright where little is certain, as on the review page; the same for colour-blind readers."""


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
