"""Confusion matrix: which class is taken for which."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from segconf.files import replacing

MOST_NUMBERS = 20
"""Classes up to which every cell shows its number."""
_DARK = 0.5


def confusion_plot(confusion: NDArray[np.int64], names: Sequence[str], path: Path) -> None:
    """Draw what is predicted for the images of each class, as a fraction of the class.

    Args:
        confusion: (K, K) images with label (row) and prediction (column).
        names: of the classes.
        path: the picture to write.
    """
    classes = len(names)
    totals = confusion.sum(axis=1, keepdims=True)
    fractions = confusion / np.maximum(totals, 1)  # (K, K)
    side = min(4 + 0.42 * classes, 14)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.add_subplot()
    picture = axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(picture, format=PercentFormatter(1), label="fraction of the class", shrink=0.8)
    size = 9 if classes <= MOST_NUMBERS else 4
    axes.set_xticks(range(classes), names, rotation=90, fontsize=size)
    axes.set_yticks(range(classes), names, fontsize=size)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    if classes <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(confusion):
            dark = fractions[row, column] > _DARK
            colour = "white" if dark else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize=7)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=150, bbox_inches="tight")
