"""Surrogates of confidence on paper: the CSV, the plot, and the gap to consistency."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from segconf.comparison.surrogates import SURROGATES, RunSurrogates
from segconf.files import write_text
from segconf.metrics.definitions import heading, scaled
from segconf.plots.curves import surrogate_curves

GAP_METRICS = ("aurc", "eaurc")


def gap_columns() -> list[str]:
    """Titles of the columns of `gap_rows`."""
    ranked = [
        f"{heading(metric)} {part}"
        for metric in GAP_METRICS
        for part in ("softmax", "consistency", "gap")
    ]
    return ["run", "method", "epoch", *ranked]


def gap_rows(runs: Sequence[RunSurrogates]) -> list[list[str]]:
    """One row per run, as in Table 1 of the paper: how far softmax is from consistency at the end.

    A ranking loss that is met makes softmax rank pixels like their consistency: the gap closes.
    """
    rows = []
    for run in runs:
        cells = [run.run.name, run.method, str(run.last.epoch)]
        for metric in GAP_METRICS:
            values = run.last.aurc if metric == "aurc" else run.last.eaurc
            softmax, consistency = values["softmax"], values["consistency"]
            numbers = (softmax, consistency, abs(softmax - consistency))
            cells += [scaled(number, metric) for number in numbers]
        rows.append(cells)
    return rows


def as_markdown(runs: Sequence[RunSurrogates]) -> str:
    """The table of gaps."""
    columns = gap_columns()
    lines = [" | ".join(columns), "|".join(["---", "---", *(["---:"] * (len(columns) - 2))])]
    lines += [" | ".join(row) for row in gap_rows(runs)]
    return "".join(f"| {line} |\n" for line in lines)


def as_csv(runs: Sequence[RunSurrogates]) -> str:
    """Raw scores: one line per run, snapshot and surrogate."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "method", "images", "epoch", "surrogate", "aurc", "eaurc"])
    for run in runs:
        for scores in run.scores:
            for name in SURROGATES:
                values = (scores.aurc[name], scores.eaurc[name])
                writer.writerow([run.run.name, run.method, run.images, scores.epoch, name, *values])
    return text.getvalue()


def write_surrogates(runs: Sequence[RunSurrogates], folder: Path) -> None:
    """Write `surrogates.csv`, `surrogates.md` and `surrogates.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "surrogates.csv", as_csv(runs))
    write_text(folder / "surrogates.md", as_markdown(runs))
    curves = {
        run.run.name: {
            name: [(s.epoch, s.aurc[name], s.eaurc[name]) for s in run.scores]
            for name in SURROGATES
        }
        for run in runs
    }
    surrogate_curves(curves, folder / "surrogates.png")
