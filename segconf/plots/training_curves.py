"""Curves of a training, and of a metric over the number of labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from segconf.csv_tables import read_table
from segconf.errors import DataError
from segconf.files import replacing
from segconf.metrics.definitions import METRICS
from segconf.plots.curves import COLOURS, axis_label

# Colours that stay apart for colour-blind readers (Okabe and Ito), each with its own line style.
LOSS_STYLES = (("#0072B2", "-"), ("#D55E00", "--"), ("#009E73", "-."), ("#CC79A7", ":"))


MANY_EPOCHS = 40


RAW_STYLE, EMA_STYLE = ("#0072B2", "-"), ("#E69F00", "--")


SHOWN_METRICS = ("aurc", "ece")
"""Columns of `epochs.csv`, a panel each, beside the quality of masks or labels."""


def training_curves(epochs_file: Path, out: Path) -> None:
    """Draw the loss terms and the validation scores of a run, epoch by epoch.

    Terms that are zero throughout are left out, and so are the scores of the EMA where there is
    none. A logarithmic axis shows the terms, which differ by orders of magnitude.

    Args:
        epochs_file: `epochs.csv` of a run; epochs are counted from 0 there and from 1 here.
        out: the picture to write, such as `training.png`.
    """
    way_out = "Remove the file: continuing the run writes it again."
    rows = read_table(epochs_file, ["epoch"], error=DataError, way_out=way_out)
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    _draw_terms(panels[0, 0], rows)
    shown = (_quality(rows), *SHOWN_METRICS)
    for axes, metric in zip((panels[0, 1], panels[1, 0], panels[1, 1]), shown, strict=True):
        _draw_metric(axes, rows, metric)
    for axes in panels.flat:
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in panels[1]:
        axes.set_xlabel("epoch")
    with replacing(out) as temporary:
        figure.savefig(temporary, format=out.suffix.removeprefix("."), dpi=110)


def _quality(rows: list[dict[str, str]]) -> str:
    """The column that the best epoch is chosen by."""
    return "accuracy" if rows and "accuracy" in rows[0] else "miou"


def _draw_terms(axes: Axes, rows: list[dict[str, str]]) -> None:
    axes.set_title("training loss, unweighted terms")
    axes.set_yscale("log")
    columns = list(rows[0]) if rows else ["steps", "miou"]
    terms = columns[columns.index("steps") + 1 : columns.index(_quality(rows))]
    for name, (color, line) in zip(terms, cycle(LOSS_STYLES), strict=False):
        epochs, values = _curve(rows, name)
        # A term that is exactly 0 (not begun, or nothing to rank) has no place on this axis.
        values = [value if value > 0 else math.nan for value in values]
        if any(math.isfinite(value) for value in values):
            axes.plot(epochs, values, line, color=color, label=name, marker=_marker(rows), ms=3)
    if axes.lines:
        axes.legend(loc="upper right")


def _draw_metric(axes: Axes, rows: list[dict[str, str]], metric: str) -> None:
    axes.set_title(f"validation {axis_label(metric)}")
    for prefix, label, (color, line) in (
        ("", "weights", RAW_STYLE),
        ("ema_", "EMA of the weights", EMA_STYLE),
    ):
        epochs, values = _curve(rows, prefix + metric)
        if epochs:
            scaled = [METRICS[metric].scale * value for value in values]
            axes.plot(epochs, scaled, line, color=color, label=label, marker=_marker(rows), ms=3)
    if len(axes.lines) > 1:
        axes.legend(loc="upper right")


def _curve(rows: list[dict[str, str]], column: str) -> tuple[list[int], list[float]]:
    """Epochs from 1 and values, where there is a value."""
    measured = [row for row in rows if row[column]]
    return [int(row["epoch"]) + 1 for row in measured], [float(row[column]) for row in measured]


def _marker(rows: list[dict[str, str]]) -> str:
    """Points are shown while there are few: a single epoch is not a line."""
    return "o" if len(rows) <= MANY_EPOCHS else ""


MARKERS = "osD^vPX"


_BAND_OPACITY = 0.15
_MOST_TICKS = 8


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
        counts = sorted({count for curve in curves.values() for count in curve.labels})
        axes.set_xticks(counts[:: -(-len(counts) // _MOST_TICKS)])
        axes.legend(fontsize=8, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=150)
