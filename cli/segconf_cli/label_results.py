"""Tables of what was predicted for labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from segconf_cli.display import results
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from segconf.evaluation.label_report import LabelReport

MOST_CLASSES = 20


def show_label_report(report: LabelReport) -> None:
    """The tables of an evaluation: metrics in the scales of the paper, and the classes."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from segconf.metrics.definitions import heading, reported_metrics, scaled

    about = report.about
    record(
        about=about,
        metrics=report.metrics["all"]["strict"],
        intervals=report.intervals,
        classes=report.classes,
    )
    results().print(
        f"{about['run']}: {about['images']} {about['split']} images, {len(report.classes)} "
        f"classes, grid {about['grid']}, encoder {about['encoder']}",
        highlight=False,
    )
    table = Table(box=SIMPLE_HEAD)
    for title in ("metric", "value", "95% interval", "paper"):
        table.add_column(title, justify="left" if title == "metric" else "right", no_wrap=True)
    for name in reported_metrics(labels=True):
        low, high = report.intervals[name]
        table.add_row(
            heading(name),
            scaled(report.metrics["all"]["strict"][name], name),
            f"{scaled(low, name)} to {scaled(high, name)}",
            scaled(report.metrics["all"]["paper"][name], name),
        )
    results().print(table)
    results().print(_classes(report))
    hidden = len(report.classes) - MOST_CLASSES
    if hidden > 0:
        results().print(f"and {hidden} more classes, in classes.csv", highlight=False)
    over = f"{about['groups']} groups" if about["resampled"] == "groups" else "images"
    results().print(f"Intervals resample {over}.", highlight=False)


def _classes(report: LabelReport) -> object:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    columns = ("recall", "precision", "f1", "auroc", "confidence")
    for title in ("class", "images", *columns):
        table.add_column(title, justify="left" if title == "class" else "right", no_wrap=True)
    for one in report.classes[:MOST_CLASSES]:
        values = (getattr(one, column) for column in columns)
        table.add_row(
            one.name, str(one.images), *("" if math.isnan(v) else f"{v:.3f}" for v in values)
        )
    return table
