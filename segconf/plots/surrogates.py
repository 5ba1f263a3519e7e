"""Which surrogate of confidence ranks best, epoch after epoch."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from segconf.files import replacing

# Colours of Okabe and Ito, each with a marker of its own: the L-curves coincide for two classes.
STYLES = (
    ("#0072B2", "o"),
    ("#009E73", "s"),
    ("#D55E00", "^"),
    ("#E69F00", "x"),
    ("#CC79A7", "+"),
    ("#56B4E9", "1"),
)
SCALE = 1e3

Curve = Sequence[tuple[int, float, float]]
"""Finished epochs, AURC and E-AURC."""


def surrogate_curves(runs: Mapping[str, Mapping[str, Curve]], out: Path) -> None:
    """Draw AURC and E-AURC over the epochs: a row of panels per run, a line per surrogate.

    Args:
        runs: for each run, the curves of its surrogates.
        out: the picture to write.
    """
    figure = Figure(figsize=(10, 3.6 * len(runs)), layout="constrained")
    panels = figure.subplots(len(runs), 2, sharex="row", squeeze=False)
    for row, (run, curves) in zip(panels, runs.items(), strict=True):
        for column, title in ((1, "AURC"), (2, "E-AURC")):
            axes = row[column - 1]
            axes.set_title(f"{run}: {title} in 1e-3 (lower is better)", fontsize=10)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.3)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            for (name, curve), (color, marker) in zip(curves.items(), STYLES, strict=True):
                epochs = [point[0] for point in curve]
                values = [SCALE * point[column] for point in curve]
                axes.plot(epochs, values, color=color, marker=marker, ms=5, lw=1.2, label=name)
    panels[0, 0].legend(loc="upper right", fontsize=8)
    with replacing(out) as temporary:
        figure.savefig(temporary, format=out.suffix.removeprefix("."), dpi=110)
