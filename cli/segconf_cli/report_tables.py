"""Tables of an evaluation: masks and labels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from segconf_cli.display import results
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from segconf.evaluation.label_report import LabelReport
    from segconf.evaluation.report import EvaluationReport

MOST_CLASSES = 20
STRATA = ("boundary", "foreground")


def show_report(report: EvaluationReport) -> None:
    """The table of an evaluation, in the scales of the paper."""
    from segconf.metrics.definitions import heading, scaled

    about = report.about
    record(
        about=about,
        metrics=report.metrics["all"]["strict"],
        intervals=report.intervals,
        per_image=report.per_image,
    )
    results().print(
        f"{about['run']}: {about['images']} {about['split']} images, {about['pixels']:,} pixels, "
        f"grid {about['grid']}, encoder {about['encoder']}",
        highlight=False,
    )
    results().print(_metrics(report, strata=STRATA))
    mean = report.per_image
    results().print(
        f"per image: Dice {mean['dice']:.3f} (quartiles {mean['dice_q1']:.3f}, "
        f"{mean['dice_median']:.3f}, {mean['dice_q3']:.3f}), IoU {mean['iou']:.3f}, "
        f"challenge Jaccard {mean['challenge_jaccard']:.3f}, "
        f"{heading('aurc')} {scaled(mean['aurc'], 'aurc')}, "
        f"{heading('ece')} {scaled(mean['ece'], 'ece')}, "
        f"Hausdorff-95 {mean['hausdorff95']:.1f} {about['distance_unit']}",
        highlight=False,
    )
    by_class = [f"{name[5:]}: {mean[name]:.3f}" for name in mean if name[5:].isdigit()]
    if by_class:
        results().print(f"Dice by class: {', '.join(by_class)}", highlight=False)
    low, high = report.per_image_intervals["dice"]
    results().print(
        f"Intervals resample {_unit(about)}; that of the mean Dice is {low:.3f} to {high:.3f}.",
        highlight=False,
    )


def show_label_report(report: LabelReport) -> None:
    """The metrics of labels in the scales of the paper, and the classes."""
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
    results().print(_metrics(report))
    results().print(_classes(report))
    hidden = len(report.classes) - MOST_CLASSES
    if hidden > 0:
        results().print(f"and {hidden} more classes, in classes.csv", highlight=False)
    results().print(f"Intervals resample {_unit(about)}.", highlight=False)


def _metrics(report: EvaluationReport | LabelReport, *, strata: Sequence[str] = ()) -> Table:
    """A row per metric: its value, its interval, its values in strata, that of the paper."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from segconf.metrics.definitions import heading, reported_metrics, scaled

    table = Table(box=SIMPLE_HEAD)
    for title in ("metric", "all", "95% interval", *strata, "paper"):
        table.add_column(title, justify="left" if title == "metric" else "right", no_wrap=True)
    for name in reported_metrics(labels=not strata):
        low, high = report.intervals[name]
        table.add_row(
            heading(name),
            scaled(report.metrics["all"]["strict"][name], name),
            f"{scaled(low, name)} to {scaled(high, name)}",
            *(scaled(report.metrics[stratum]["strict"][name], name) for stratum in strata),
            scaled(report.metrics["all"]["paper"][name], name),
        )
    return table


def _unit(about: Mapping[str, object]) -> str:
    """What the intervals resample."""
    return f"{about['groups']} groups" if about["resampled"] == "groups" else "images"


def _classes(report: LabelReport) -> Table:
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
