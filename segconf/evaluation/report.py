"""The report of an evaluation, and its files."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch

from segconf.csv_tables import table_text
from segconf.evaluation.evaluator import CaseScores, Evaluator
from segconf.evaluation.image_counts import IMAGE_COUNTS, ImageCounts, save_image_counts
from segconf.files import make_folder, write_text
from segconf.metrics.bootstrap import (
    RESAMPLES,
    bootstrap_metrics,
    draw_units,
    mean_interval,
    resampled_unit,
)
from segconf.metrics.definitions import METRICS, PROTOCOLS
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.plots.curves import reliability_diagram, risk_coverage_plot

Interval = tuple[float, float]

REPORT_FILES = (
    *("metrics.json", "cases.csv", IMAGE_COUNTS, "risk_coverage.png", "reliability.png"),
    *("guarantees.png", "expected_dice.png", "ood.*", "triage.*"),
    *("classes.csv", "confusion.png"),
)
"""What commands write into the folder of a report."""
NAMES = ("case", "group")
SCORES = tuple(f.name for f in fields(CaseScores) if f.name not in (*NAMES, "unit", "class_dice"))
DISTANCES = ("hausdorff95", "surface_distance")
_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Metrics by stratum (raw values), intervals over groups of images, and a row per image."""

    about: Mapping[str, object]
    metrics: Mapping[str, Mapping[str, Mapping[str, float]]]  # stratum, protocol, metric
    intervals: Mapping[str, Interval]  # of the strict metrics over all pixels
    per_image: Mapping[str, float]
    per_image_intervals: Mapping[str, Interval]  # of the means
    cases: Sequence[CaseScores]
    pooled: ConfidenceMetrics
    summaries: Sequence[ImageSummary]


def build_report(
    evaluator: Evaluator, about: Mapping[str, object], *, seed: int = 0
) -> EvaluationReport:
    """Metrics, intervals and averages of the images that were evaluated."""
    rows, groups = [scores_of_row(row) for row in evaluator.rows], evaluator.groups
    weights = draw_units(groups, torch.Generator().manual_seed(seed))  # (R, I)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    units = sorted({row.unit for row in evaluator.rows})
    if len(units) > 1:  # millimetres and pixels have no mean
        columns |= {name: np.full(len(rows), math.nan) for name in DISTANCES}
    per_image = {name: _mean(values.tolist()) for name, values in columns.items()}
    overlaps = [row.dice for row in evaluator.rows if not math.isnan(row.dice)] or [math.nan]
    quartiles = np.quantile(overlaps, [0.25, 0.5, 0.75]).tolist()
    per_image |= dict(zip(("dice_q1", "dice_median", "dice_q3"), quartiles, strict=True))
    counts = {
        "images": len(rows),
        "groups": len(set(groups)),
        "resampled": resampled_unit(groups),
        "distance_unit": " and ".join(units),
        "pixels": evaluator.pooled["all"].pixels,
    }
    return EvaluationReport(
        about={**about, **counts},
        metrics={
            name: {"strict": pooled.compute("strict"), "paper": pooled.compute("paper")}
            for name, pooled in evaluator.pooled.items()
        },
        intervals=bootstrap_metrics(
            evaluator.summaries, torch.Generator().manual_seed(seed), groups=groups
        ),
        per_image=per_image,
        per_image_intervals={n: mean_interval(values, weights) for n, values in columns.items()},
        cases=evaluator.rows,
        pooled=evaluator.pooled["all"],
        summaries=evaluator.summaries,
    )


def scores_of_row(row: CaseScores) -> dict[str, float]:
    """Scores of an image by the name of their column; the Dice of each class of several."""
    by_class = row.class_dice if len(row.class_dice) >= _SEVERAL else ()
    classes = {f"dice_{number}": value for number, value in enumerate(by_class, 1)}
    return {**{name: getattr(row, name) for name in SCORES}, **classes}


def write_report(report: EvaluationReport, folder: Path) -> None:
    """Write metrics.json, cases.csv, both figures, and the summaries that `compare` pairs."""
    make_folder(folder)
    # An evaluation counts where its metrics are: they are written when the rest is there.
    (folder / "metrics.json").unlink(missing_ok=True)
    content = {
        **report.about,
        "metrics": report.metrics,
        "intervals": {name: list(interval) for name, interval in report.intervals.items()},
        "interval": f"95%, percentiles of {RESAMPLES} resamples of {report.about['resampled']}",
        "per_image": report.per_image,
        "per_image_intervals": {n: list(pair) for n, pair in report.per_image_intervals.items()},
        "confusion": report.pooled.confusion.tolist(),
        "definitions": {name: metric.definition for name, metric in METRICS.items()},
        "protocols": PROTOCOLS,
    }
    write_text(folder / "cases.csv", _table(report.cases))
    curve, reliability = report.pooled.risk_coverage(), report.pooled.reliability()
    summaries = {row.case: one for row, one in zip(report.cases, report.summaries, strict=True)}
    groups = [row.group for row in report.cases]
    counts = ImageCounts(summaries, groups, curve, reliability)
    save_image_counts(folder / IMAGE_COUNTS, counts)
    write_text(folder / "metrics.json", json.dumps(json_values(content), indent=1))
    risk_coverage_plot({str(report.about.get("method", "")): curve}, folder / "risk_coverage.png")
    reliability_diagram(reliability, folder / "reliability.png")


def _mean(values: Sequence[float]) -> float:
    """Mean of the images for which a score is defined."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _table(rows: Sequence[CaseScores]) -> str:
    columns = list(scores_of_row(rows[0]))
    cells = []
    for row in rows:
        scores = scores_of_row(row)
        known = ["" if math.isnan(scores[name]) else scores[name] for name in columns]
        cells.append([row.case, row.group, *known, row.unit])
    return table_text([*NAMES, *columns, "unit"], cells)


def json_values(value: object) -> object:
    """The same content with null for nan and infinity, which JSON does not know."""
    match value:
        case Mapping():
            return {key: json_values(inner) for key, inner in value.items()}
        case list() | tuple():
            return [json_values(inner) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value
