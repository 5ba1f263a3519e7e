"""The report of an evaluation of labels, and its files."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.csv_tables import table_text
from segconf.evaluation.image_counts import IMAGE_COUNTS, ImageCounts, save_image_counts
from segconf.evaluation.report import Interval, json_values
from segconf.files import make_folder, write_text
from segconf.metrics.bootstrap import RESAMPLES, bootstrap_metrics, resampled_unit
from segconf.metrics.definitions import METRICS, PROTOCOLS
from segconf.metrics.label_summary import LabelSummaries
from segconf.metrics.selective import auroc
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.plots.confusion import confusion_plot
from segconf.plots.curves import reliability_diagram, risk_coverage_plot

CASE_COLUMNS = ("case", "group", "label", "prediction", "confidence", "correct", "nll", "brier")


@dataclass(frozen=True, slots=True)
class ClassScores:
    """The line of a class; nan where a score is not defined.

    Attributes:
        name: of the class.
        images: that have it.
        predicted: for which it is predicted.
        recall: fraction of the images of the class that are found (sensitivity).
        precision: fraction of the predictions of the class that are right.
        f1: harmonic mean of both.
        auroc: probability that an image of the class gets a higher probability of it than another.
        confidence: mean confidence where it is predicted; beside the precision it says how
            calibrated the class is.
    """

    name: str
    images: int
    predicted: int
    recall: float
    precision: float
    f1: float
    auroc: float
    confidence: float


@dataclass(frozen=True, slots=True)
class LabelReport:
    """Metrics (raw values), intervals over groups of images, a line per class and per image."""

    about: Mapping[str, object]
    metrics: Mapping[str, Mapping[str, Mapping[str, float]]]  # "all", protocol, metric
    intervals: Mapping[str, Interval]
    classes: Sequence[ClassScores]
    cases: Sequence[str]
    groups: Sequence[str]
    pooled: ConfidenceMetrics
    summaries: LabelSummaries


@dataclass(frozen=True, slots=True)
class EvaluatedLabels:
    """Images of a split: their names and groups, and what is predicted for them.

    Attributes:
        cases: (N,) names.
        groups: (N,).
        probabilities: (N, K).
        pooled: metrics of all.
        summaries: of each.
    """

    cases: Sequence[str]
    groups: Sequence[str]
    probabilities: NDArray[np.float32]
    pooled: ConfidenceMetrics
    summaries: LabelSummaries


def build_label_report(
    found: EvaluatedLabels, names: Sequence[str], about: Mapping[str, object], *, seed: int = 0
) -> LabelReport:
    """Metrics, intervals and the lines of the classes.

    Args:
        found: the images.
        names: of the classes.
        about: what `metrics.json` says about the run.
        seed: of the resampling.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = {
        "images": len(found.cases),
        "groups": len(set(found.groups)),
        "resampled": resampled_unit(found.groups),
        "class_names": list(names),
    }
    return LabelReport(
        about={**about, **counts},
        metrics={"all": {protocol: found.pooled.compute(protocol) for protocol in PROTOCOLS}},
        intervals=bootstrap_metrics(found.summaries, generator, groups=found.groups),
        classes=[_class_scores(found, number, name) for number, name in enumerate(names)],
        cases=found.cases,
        groups=found.groups,
        pooled=found.pooled,
        summaries=found.summaries,
    )


def _class_scores(found: EvaluatedLabels, number: int, name: str) -> ClassScores:
    summaries = found.summaries
    true, predicted = summaries.truth == number, summaries.prediction == number  # (N,) each
    hits = int((true & predicted).sum())
    images, claimed = int(true.sum()), int(predicted.sum())
    return ClassScores(
        name=name,
        images=images,
        predicted=claimed,
        recall=hits / images if images else math.nan,
        precision=hits / claimed if claimed else math.nan,
        f1=2 * hits / (images + claimed) if images + claimed else math.nan,
        auroc=auroc(found.probabilities[:, number], true),
        confidence=float(summaries.confidence[predicted].mean()) if claimed else math.nan,
    )


def write_label_report(report: LabelReport, folder: Path) -> None:
    """Write metrics.json, cases.csv, classes.csv, three figures, and what `compare` pairs."""
    make_folder(folder)
    # An evaluation counts where its metrics are: they are written when the rest is there.
    (folder / "metrics.json").unlink(missing_ok=True)
    names = [one.name for one in report.classes]
    content = {
        **report.about,
        "metrics": report.metrics,
        "intervals": {name: list(interval) for name, interval in report.intervals.items()},
        "interval": f"95%, percentiles of {RESAMPLES} resamples of {report.about['resampled']}",
        "classes": [asdict(one) for one in report.classes],
        "confusion": report.pooled.confusion.tolist(),
        "definitions": {name: metric.definition for name, metric in METRICS.items()},
        "protocols": PROTOCOLS,
    }
    write_text(folder / "classes.csv", _class_table(report.classes))
    write_text(folder / "cases.csv", _case_table(report, names))
    curve, reliability = report.pooled.risk_coverage(), report.pooled.reliability()
    labels, cases = report.summaries, report.cases
    counts = ImageCounts({}, report.groups, curve, reliability, labels, cases)
    save_image_counts(folder / IMAGE_COUNTS, counts)
    write_text(folder / "metrics.json", json.dumps(json_values(content), indent=1))
    method = str(report.about.get("method", ""))
    risk_coverage_plot({method: curve}, folder / "risk_coverage.png", unit="images")
    reliability_diagram(reliability, folder / "reliability.png", unit="images")
    confusion_plot(report.pooled.confusion, names, folder / "confusion.png")


def _class_table(classes: Sequence[ClassScores]) -> str:
    columns = [field.name for field in fields(ClassScores)]
    rows = [[_cell(getattr(one, column)) for column in columns] for one in classes]
    return table_text(["class", *columns[1:]], rows)


def _case_table(report: LabelReport, names: Sequence[str]) -> str:
    found = report.summaries
    rows = (
        (
            case,
            group,
            names[found.truth[row]],
            names[found.prediction[row]],
            float(found.confidence[row]),
            int(not found.wrong[row]),
            float(found.nll[row]),
            float(found.brier[row]),
        )
        for row, (case, group) in enumerate(zip(report.cases, report.groups, strict=True))
    )
    return table_text(CASE_COLUMNS, rows)


def _cell(value: object) -> object:
    return "" if isinstance(value, float) and math.isnan(value) else value
