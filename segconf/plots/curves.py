"""Risk-coverage curves, reliability diagrams, and surrogates over epochs."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from segconf.files import replacing
from segconf.metrics.definitions import METRICS, scaled
from segconf.metrics.reliability import ReliabilityCurve
from segconf.metrics.risk_coverage import RiskCoverageCurve

MARKED_RISKS = (0.01, 0.05)


COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito: told apart with any colour vision."""


def axis_label(metric: str) -> str:
    """Title, scale and direction, such as `AURC in 1e-3 (lower is better)`."""
    declared = METRICS[metric]
    scale = f" in 1e-{declared.exponent}" if declared.exponent else ""
    return f"{declared.title}{scale} ({declared.better} is better)"


def value_label(value: float, metric: str) -> str:
    """Title, scaled value and scale, such as `AURC 12.79 (x 10^3)`."""
    exponent = METRICS[metric].exponent
    scale = f" (x 10$^{exponent}$)" if exponent else ""
    return f"{METRICS[metric].title} {scaled(value, metric)}{scale}"


def risk_coverage_plot(
    curves: Mapping[str, RiskCoverageCurve], path: Path, *, unit: str = "pixels"
) -> None:
    """Risk that is left when the least confident pixels are refused, by method.

    The optimum refuses exactly the wrong pixels; the random reference refuses any. Marked is the
    coverage that keeps the risk at 1% and at 5%.

    Args:
        curves: by method.
        path: the picture to write.
        unit: what is refused: pixels, or images of labels.
    """
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    _draw_risk(figure.add_subplot(), curves, unit)
    _save(figure, path)


def comparison_plot(
    risks: Mapping[str, RiskCoverageCurve],
    reliabilities: Mapping[str, Sequence[ReliabilityCurve]],
    path: Path,
    *,
    unit: str = "pixels",
) -> None:
    """Risk-coverage and reliability of several methods; one thin line per seed of the latter."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_risk(left, risks, unit)
    right.plot([0, 1], [0, 1], "--", color="0.4", linewidth=1, label="perfect calibration")
    for colour, (name, runs) in zip(cycle(COLOURS), reliabilities.items(), strict=False):
        for number, curve in enumerate(runs):
            mean = sum(run.ece for run in runs) / len(runs)
            label = f"{name}, {value_label(mean, 'ece')}" if number == 0 else None
            filled = curve.count > 0
            right.plot(
                curve.confidence[filled],
                curve.accuracy[filled],
                "o-",
                color=colour,
                markersize=3,
                linewidth=1,
                label=label,
            )
    lowest = min(
        curve.lower[curve.count > 0].min() for runs in reliabilities.values() for curve in runs
    )
    right.set_xlim(lowest, 1)
    right.set_ylim(0, 1)
    right.set_xlabel("mean confidence of the bin")
    right.set_ylabel(f"fraction of right {unit}")
    right.legend(loc="upper left", fontsize=8, frameon=False)
    right.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _draw_risk(axes: Axes, curves: Mapping[str, RiskCoverageCurve], unit: str) -> None:
    for colour, (name, curve) in zip(cycle(COLOURS), curves.items(), strict=False):
        kept = ", ".join(
            f"{curve.coverage_at(risk):.1%} at {risk:.0%} risk" for risk in MARKED_RISKS
        )
        label = f"{name or 'confidence'}, {value_label(curve.aurc, 'aurc')}\nkept: {kept}"
        axes.plot(curve.coverage, curve.risk, color=colour, label=label)
        for risk in MARKED_RISKS:
            coverage = curve.coverage_at(risk)
            if 0 < coverage < 1:
                axes.plot(coverage, risk, "o", color=colour, markersize=5)
    first = next(iter(curves.values()))
    axes.plot(first.coverage, first.optimal_risk, "--", color="0.4", label="optimum")
    axes.axhline(first.random_risk, linestyle=":", color="0.4", label="random order")
    axes.set_xlabel(f"coverage: fraction of {unit} kept, most confident first")
    axes.set_ylabel(f"risk: fraction of wrong {unit} among them")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.35 * max(curve.random_risk for curve in curves.values()) or 1)
    axes.legend(loc="upper left", fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)


def reliability_diagram(curve: ReliabilityCurve, path: Path, *, unit: str = "pixels") -> None:
    """How often pixels, or labels of images, of a confidence are right, and how many have it."""
    figure = Figure(figsize=(5.2, 5.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    filled = curve.count > 0
    centres, width = (curve.lower + curve.upper) / 2, curve.upper - curve.lower
    upper.bar(
        centres[filled],
        curve.accuracy[filled],
        width[filled] * 0.92,
        color=COLOURS[0],
        alpha=0.85,
        label="right in this bin",
    )
    upper.plot([0, 1], [0, 1], "--", color="0.3", linewidth=1, label="perfect calibration")
    upper.vlines(
        curve.confidence[filled],
        curve.accuracy[filled],
        curve.confidence[filled],
        color=COLOURS[1],
        linewidth=2,
        label="gap to the mean confidence",
    )
    upper.set_ylabel(f"fraction of right {unit}")
    upper.set_ylim(0, 1)
    upper.set_title(value_label(curve.ece, "ece"), loc="left", fontsize=10)
    upper.legend(loc="upper left", fontsize=8, frameon=False)
    lower.bar(centres[filled], curve.count[filled], width[filled] * 0.92, color="0.55")
    lower.set_yscale("log")
    lower.set_ylim(0.5, None)
    for x, count in zip(centres[filled], curve.count[filled], strict=True):
        lower.annotate(
            _short(int(count)),
            (x, count),
            xytext=(0, -3),
            textcoords="offset points",
            ha="center",
            va="top",
            rotation=90,
            fontsize=7,
            color="white" if count > np.sqrt(curve.count.max()) else "black",
        )
    lower.set_ylabel(unit)
    lower.set_xlabel("confidence")
    lower.set_xlim(0, 1)
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def _short(count: int) -> str:
    for limit, unit in ((10**6, "M"), (10**3, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{unit}"
    return str(count)


def _save(figure: Figure, path: Path) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=150)


# Colours of Okabe and Ito, each with a marker of its own: the L-curves coincide for two classes.
STYLES = (
    ("#0072B2", "o"),
    ("#009E73", "s"),
    ("#D55E00", "^"),
    ("#E69F00", "x"),
    ("#CC79A7", "+"),
    ("#56B4E9", "1"),
)


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
        for column, metric in enumerate((METRICS["aurc"], METRICS["eaurc"]), start=1):
            axes = row[column - 1]
            axes.set_title(f"{run}: {axis_label(metric.name)}", fontsize=10)
            axes.set_xlabel("epoch")
            axes.grid(alpha=0.3)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            for (name, curve), (color, marker) in zip(curves.items(), STYLES, strict=True):
                epochs = [point[0] for point in curve]
                values = [metric.scale * point[column] for point in curve]
                axes.plot(epochs, values, color=color, marker=marker, ms=5, lw=1.2, label=name)
    panels[0, 0].legend(loc="upper right", fontsize=8)
    with replacing(out) as temporary:
        figure.savefig(temporary, format=out.suffix.removeprefix("."), dpi=110)
