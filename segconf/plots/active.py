"""What labels bring: a metric over the number of labels, by strategy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from segconf.files import replacing
from segconf.plots.curves import COLOURS

MARKERS = "osD^vPX"
_BAND_OPACITY = 0.15


@dataclass(frozen=True, slots=True)
class LabelCurve:
    """Mean and standard deviation (nan for a single seed) at each number of labels."""

    labels: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float]


def label_curves(panels: Mapping[str, Mapping[str, LabelCurve]], path: Path) -> None:
    """One panel per metric: a line per strategy, a band of one standard deviation around it.

    Args:
        panels: title of the axis, then name of the strategy.
        path: the picture to write.
    """
    figure = Figure(figsize=(5.4 * len(panels), 4.2), layout="constrained")
    for axes, (title, curves) in zip(
        np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True
    ):
        # A marker as well as a colour: lines that share their first point are still told apart.
        for colour, marker, (name, curve) in zip(
            cycle(COLOURS), cycle(MARKERS), curves.items(), strict=False
        ):
            mean, std = np.asarray(curve.mean), np.asarray(curve.std)
            axes.plot(curve.labels, mean, marker=marker, ms=5, color=colour, label=name)
            if not np.isnan(std).any():
                axes.fill_between(
                    curve.labels, mean - std, mean + std, color=colour, alpha=_BAND_OPACITY, lw=0
                )
        axes.set_xlabel("labeled images")
        axes.set_ylabel(title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=150)
