"""Examples beside each other: the image, the mask, the confidence and where the mask is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from segconf.files import replacing
from segconf.plots.history import COLOR_MAP

PANEL_INCHES = 1.9
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
    inches = (4 * PANEL_INCHES + 0.7, len(examples) * PANEL_INCHES * height / width + 0.25)
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
