"""A comparison in words and files: cells, costs, Markdown, CSV, LaTeX, and all curves."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segconf.comparison.compare import Comparison, Evaluated, Row
from segconf.csv_tables import table_text
from segconf.files import make_folder, write_text
from segconf.metrics.definitions import METRICS, heading, scaled
from segconf.metrics.risk_coverage import RiskCoverageCurve
from segconf.plots.curves import comparison_plot


@dataclass(frozen=True, slots=True)
class Cost:
    """How tables show a cost: its title, and the number that turns a value into its unit."""

    title: str
    factor: float
    digits: int


COSTS = {
    "training_seconds": Cost("training min", 1 / 60, 1),
    "inference_passes": Cost("passes", 1, 0),
    "inference_seconds_per_image": Cost("ms/image", 1000, 1),
}
"""By their names in `metrics.json`, where times are in seconds."""
BAND = (
    "Band: area between the inner and the outer contour with this promise, as a fraction of the "
    "lesion; narrower is better."
)


def known_costs(comparison: Comparison) -> tuple[str, ...]:
    """Costs that are known of a row at least, in the order of their columns."""
    known = [row_costs(row) for row in comparison.rows]
    return tuple(name for name in COSTS if any(name in costs for costs in known))


def row_costs(row: Row) -> dict[str, float]:
    """Mean over the runs of the costs that all of them know, in the unit of `metrics.json`."""
    return {
        name: statistics.fmean(run.about[name] for run in row.runs)
        for name in COSTS
        if row.runs and all(run.about.get(name) is not None for run in row.runs)
    }


def cost_cell(row: Row, name: str) -> str:
    """A cost in the unit of its column; empty where it is not known."""
    costs = row_costs(row)
    if name not in costs:
        return ""
    return f"{costs[name] * COSTS[name].factor:.{COSTS[name].digits}f}"


def known_bands(comparison: Comparison) -> tuple[float, ...]:
    """Promises for which all of our rows have an inner and an outer contour."""
    bands = [row_bands(row) for row in comparison.rows if row.runs]
    return tuple(alpha for alpha in bands[0] if all(alpha in band for band in bands))


def row_bands(row: Row) -> dict[float, float]:
    """By promise: area between the contours as a fraction of the lesion, over runs and classes."""
    found: dict[float, list[list[float]]] = {}
    for run in row.runs:
        own: dict[float, list[float]] = {}
        for one in run.about.get("guarantees", []):
            if one["kind"] == "outer" and one["band_fraction"] is not None:
                own.setdefault(one["alpha"], []).append(one["band_fraction"])
        for alpha, values in own.items():
            found.setdefault(alpha, []).append(values)
    return {
        alpha: statistics.fmean(map(statistics.fmean, runs))
        for alpha, runs in sorted(found.items())
        if len(runs) == len(row.runs)
    }


def band_title(alpha: float) -> str:
    """Heading of the band of a promise."""
    return f"band at {alpha:g}"


def band_cell(row: Row, alpha: float) -> str:
    """The band of a promise; empty where it is not known."""
    bands = row_bands(row)
    return f"{bands[alpha]:.3f}" if alpha in bands else ""


def cell(row: Row, metric: str, *, with_spread: bool = True) -> str:
    """Mean and, over several seeds, standard deviation; empty where it was not published."""
    if metric not in row.values:
        return ""
    text = scaled(row.values[metric], metric)
    if not (row.spread and with_spread):
        return text
    return f"{text} ± {scaled(row.spread[metric], metric)}"


def is_best(comparison: Comparison, row: Row, metric: str) -> bool:
    """Whether a cell shows the best of our values, as far as the table's digits go."""
    if row.is_published or math.isnan(row.values[metric]):
        return False
    return scaled(row.values[metric], metric) == scaled(comparison.best(metric), metric)


def difference_cell(row: Row, metric: str) -> str:
    """Interval of the difference to the baseline."""
    if metric not in row.difference:
        return ""
    low, high = (scaled(value, metric) for value in row.difference[metric])
    return f"{low} to {high}"


def effect_cell(row: Row, metric: str) -> str:
    """Difference to the baseline in percent of it, and its interval."""
    if metric not in row.effect:
        return ""
    effect = row.effect[metric]
    value, low, high = (f"{100 * one:+.1f}" for one in (effect.value, effect.low, effect.high))
    return f"{value} ({low} to {high})"


def as_markdown(comparison: Comparison) -> str:
    """The table, and below it the differences, as they are and in percent."""
    metrics, costs, bands = comparison.metrics, known_costs(comparison), known_bands(comparison)
    heads = [heading(metric) for metric in metrics]
    more = [*map(band_title, bands), *(COSTS[name].title for name in costs)]
    lines = _markdown_heads([*heads, *more])
    for row in comparison.rows:
        cells = [
            f"**{cell(row, m)}**" if is_best(comparison, row, m) else cell(row, m) for m in metrics
        ]
        cells += [band_cell(row, alpha) for alpha in bands]
        cells += [cost_cell(row, name) for name in costs]
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    if bands:
        lines += ["", BAND]
    compared = [row for row in comparison.rows if row.difference]
    if compared:
        over = f"95% interval over {comparison.resampled}"
        titles = [METRICS[metric].title for metric in metrics]
        for title, columns, shown in (
            (f"Difference to {comparison.baseline}, {over}:", heads, difference_cell),
            (f"The same in percent of {comparison.baseline}:", titles, effect_cell),
        ):
            lines += ["", title, "", *_markdown_heads(columns)]
            lines += [
                f"| {row.name} | " + " | ".join(shown(row, m) for m in metrics) + " |"
                for row in compared
            ]
    return "\n".join(lines) + "\n"


def _markdown_heads(heads: Sequence[str]) -> list[str]:
    return ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]


def as_csv(comparison: Comparison) -> str:
    """Raw values: mean, deviation over seeds, interval of the difference, effect; costs.

    Effects are relative to the baseline: -0.1 is 10% less.
    """
    differences = ("_difference_low", "_difference_high", "_effect", "_effect_low", "_effect_high")
    kinds = ("", "_std", *differences)
    metrics, costs, bands = comparison.metrics, known_costs(comparison), known_bands(comparison)
    columns = [f"{m}{kind}" for m in metrics for kind in kinds]
    columns += [f"band_fraction_{alpha:g}" for alpha in bands]
    lines: list[list[object]] = []
    for row in comparison.rows:
        numbers: list[object] = []
        for m in metrics:
            mean = row.values.get(m, "")
            numbers += [mean, row.spread.get(m, ""), *row.difference.get(m, ("", ""))]
            numbers += astuple(row.effect[m]) if m in row.effect else ("", "", "")
        numbers += [row_bands(row).get(alpha, "") for alpha in bands]
        numbers += [row_costs(row).get(name, "") for name in costs]
        lines.append([row.name, len(row.runs), *numbers])
    return table_text(["row", "runs", *columns, *costs], lines)


def as_latex(comparison: Comparison) -> str:
    """A tabular in the layout of the paper."""
    metrics, costs, bands = comparison.metrics, known_costs(comparison), known_bands(comparison)
    heads = [_latex_heading(metric) for metric in metrics]
    heads += [band_title(alpha) for alpha in bands]
    heads += [COSTS[name].title for name in costs]
    lines = [r"\begin{tabular}{l" + "r" * len(heads) + "}"]
    lines += [rf" & {' & '.join(heads)} \\", r"\hline"]
    for row in comparison.rows:
        cells = []
        for m in metrics:
            text = cell(row, m).replace("±", r"\pm")
            plain = f"${text}$" if text else ""
            cells.append(rf"$\mathbf{{{text}}}$" if is_best(comparison, row, m) else plain)
        cells += [band_cell(row, alpha) for alpha in bands]
        cells += [cost_cell(row, name) for name in costs]
        lines.append(rf"{row.name} & " + " & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


FILES = ("table.md", "table.csv", "table.tex", "curves.png")


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write the table as Markdown, CSV and LaTeX, and both curves of all methods in one plot."""
    make_folder(folder)
    write_text(folder / "table.md", as_markdown(comparison))
    write_text(folder / "table.csv", as_csv(comparison))
    write_text(folder / "table.tex", as_latex(comparison))
    ours = [row for row in comparison.rows if row.runs]
    comparison_plot(
        {row.name: _mean_curve(row.runs) for row in ours},
        {row.name: [run.counts.reliability for run in row.runs] for row in ours},
        folder / "curves.png",
        unit="images" if comparison.has_labels else "pixels",
    )


def _mean_curve(runs: Sequence[Evaluated]) -> RiskCoverageCurve:
    """Curve of a method: risks averaged over its seeds."""
    curves = [run.counts.curve for run in runs]
    shortest = min(curves, key=lambda curve: len(curve.coverage))  # that of a kept evaluation

    def mean(name: str) -> NDArray[np.float64]:
        at = shortest.coverage
        risks = [np.interp(at, curve.coverage, getattr(curve, name)) for curve in curves]
        return np.asarray(np.mean(risks, axis=0), np.float64)

    return replace(
        shortest,
        risk=mean("risk"),
        optimal_risk=mean("optimal_risk"),
        random_risk=statistics.fmean(curve.random_risk for curve in curves),
        aurc=statistics.fmean(curve.aurc for curve in curves),
    )


def _latex_heading(metric: str) -> str:
    exponent = METRICS[metric].exponent
    scale = rf" $\times 10^{exponent}$" if exponent else ""
    return METRICS[metric].title + scale
