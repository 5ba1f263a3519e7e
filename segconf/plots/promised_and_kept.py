"""What conformal contours promise against what they keep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from segconf.files import replacing
from segconf.plots.curves import COLOURS

_STYLES = ("o-", "s--", "^-.", "D:")


@dataclass(frozen=True, slots=True)
class KeptPoint:
    """A promise alpha, the mean loss that was measured, and its 95% interval."""

    alpha: float
    measured: float
    low: float
    high: float


def guarantee_plot(curves: Mapping[str, Sequence[KeptPoint]], path: Path, *, note: str) -> None:
    """Promised and kept losses with their 95% intervals; a promise is kept below the diagonal.

    Args:
        curves: points of every contour by its name.
        path: the picture.
        note: what the promise assumes.
    """
    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.add_subplot()
    largest = max((point.alpha for points in curves.values() for point in points), default=0.1)
    axes.plot([0, largest], [0, largest], "--", color="0.4", linewidth=1, label="promised")
    for colour, style, (name, points) in zip(
        cycle(COLOURS), cycle(_STYLES), curves.items(), strict=False
    ):
        promised = [point.alpha for point in points]
        axes.fill_between(
            promised,
            [point.low for point in points],
            [point.high for point in points],
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
        measured = [point.measured for point in points]
        axes.plot(promised, measured, style, color=colour, markersize=4, label=name)
    axes.set_xlabel("promised: largest expected loss")
    axes.set_ylabel("kept: mean loss, 95% interval over groups")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlim(0, 1.03 * largest)
    axes.set_ylim(0, None)
    axes.legend(loc="upper left", fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    note += " No contour crosses the predicted outline: larger promises change nothing there."
    figure.supxlabel(note, fontsize=7, color="0.3", wrap=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=160, format="png")
