"""Results of benchmarks, kept small enough for the repository, and the tables made from them.

Folders of `benchmarks/results/runs` are protocols; in each, an evaluation has a folder of its own
with its metrics and the counts of its images (see `segconf.evaluation.image_counts`), so that the
tables and their intervals can be made again without the runs.

Run: python benchmarks/table.py keep BENCHMARK --protocol converged
     python benchmarks/table.py keep BENCHMARK --protocol NAME --evaluation left-out
     python benchmarks/table.py write
"""

import argparse
import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from segconf.comparison.compare import (
    METRICS_FILE,
    Comparison,
    Evaluated,
    Row,
    compare_evaluated,
    read_evaluation,
)
from segconf.comparison.published import has_published
from segconf.comparison.tables import cell, cost_cell, effect_cell, is_best
from segconf.config.ranges import Task
from segconf.config.records import read_json
from segconf.csv_tables import read_table
from segconf.errors import DataError
from segconf.evaluation.image_counts import IMAGE_COUNTS, save_image_counts
from segconf.files import make_folder, read_text, write_text
from segconf.metrics.bootstrap import resampled_metrics
from segconf.metrics.definitions import METRICS, heading, scaled

RESULTS = Path(__file__).parent / "results"
RUNS = RESULTS / "runs"
BEGIN, END = "<!-- written by benchmarks/table.py -->", "<!-- end of what it wrote -->"
EVALUATIONS = {
    "test": "",
    "test-calibrated": "-calibrated",
    "test-ets": "-ets",
    "test-last": "-last",
}
"""Folders of an evaluation in a run, and how they are named here."""
FOR_READERS = ("definitions", "protocols", "assumptions", "guarantees", "null")
"""Parts of `metrics.json` that are the same everywhere, or belong to one run only."""
TITLES = {
    "converged": "Until convergence",
    "equal_cost": "Equal cost",
    "equal_cost_220": "Equal cost, 220 training images",
    "without_below_1000": "Trained without ids below 1000, at home",
    "without_below_1000_away": "Trained without ids below 1000, away: only such ids",
    "without_from_13000": "Trained without ids from 13000, at home",
    "without_from_13000_away": "Trained without ids from 13000, away: only such ids",
    "cifar10": "CIFAR-10 (JPEG, 20,000 images)",
    "diagnosis": "ISIC 2017 diagnoses",
}
REPORTS: Mapping[Task, str] = {
    "segmentation": "methods.md",
    "classification": "classification.md",
}
MOST_CLASSES = 5
"""Classes up to which a table shows each of them."""
BASELINES = ("softmax", "consistency")
ID_RANGES = {"below 1000": (0, 999), "9000 to 12999": (9000, 12999), "from 13000": (13000, 10**7)}
SHIFT_FILE = "shift.json"
SHIFT_METRICS = ("aurc", "ece")


def keep(benchmark: Path, out: Path, evaluations: Mapping[str, str] = EVALUATIONS) -> list[Path]:
    """Copy the evaluations of all runs of a benchmark in their compact form."""
    kept = []
    for run in sorted(path.parent for path in benchmark.glob("*/evaluation")):
        for split, suffix in evaluations.items():
            if not (run / "evaluation" / split / METRICS_FILE).is_file():
                continue
            evaluated = read_evaluation(run, split)
            folder = out / f"{run.name}{suffix}"
            make_folder(folder)
            content = read_json(run / "evaluation" / split / METRICS_FILE)
            short = {name: value for name, value in content.items() if name not in FOR_READERS}
            if "dataset" in short:  # where a folder lies says nothing elsewhere
                short["dataset"] = Path(short["dataset"]).name
            write_text(folder / METRICS_FILE, json.dumps(short, indent=1) + "\n")
            save_image_counts(folder / IMAGE_COUNTS, evaluated.counts.compact())
            kept.append(folder)
    return kept


def read_kept(protocol: Path) -> dict[int, list[Evaluated]]:
    """Kept evaluations of a protocol by number of labels."""
    found: dict[int, list[Evaluated]] = {}
    for file in sorted(protocol.glob(f"*/{METRICS_FILE}")):
        evaluated = read_evaluation(file.parent, "test")
        found.setdefault(int(evaluated.about["labeled"]), []).append(evaluated)
    return dict(sorted(found.items()))


def sections(runs: Path = RUNS, task: Task = "segmentation") -> Iterator[str]:
    """One section for each protocol and number of labels of a task."""
    for name in (*TITLES, *sorted({path.name for path in runs.glob("*")} - {*TITLES})):
        for labels, evaluated in read_kept(runs / name).items():
            if evaluated[0].task == task:
                title = f"### {TITLES.get(name, name)}, {labels} labels"
                yield f"{title}\n\n{section(labels, evaluated)}"


def section(labels: int, evaluated: Sequence[Evaluated]) -> str:
    """Values beside those of the paper, differences in percent, and what the task has besides."""
    paper = labels if has_published(evaluated[0].task, evaluated[0].classes, labels) else None
    comparison = compare_evaluated(evaluated, split="test", paper=paper)
    images = len(evaluated[0].counts.groups)
    parts = [
        f"{images} hold-out images; mean ± standard deviation over seeds, best of ours in bold.",
        value_table(comparison),
    ]
    for method in BASELINES:
        if any(run.about["method"] == method for run in evaluated):
            against = compare_evaluated(evaluated, split="test", baseline=method)
            parts += effect_table(against)
    if evaluated[0].task == "classification":
        parts += class_table(comparison)
    else:
        parts += range_table(comparison)
        parts += shift_table(comparison)
    return "\n\n".join(parts) + "\n"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is a name."""
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def value_table(comparison: Comparison) -> str:
    """The layout of the paper, and what the rows cost."""
    metrics = comparison.metrics
    rows = []
    for row in comparison.rows:
        values = [
            f"**{cell(row, m)}**" if is_best(comparison, row, m) else cell(row, m) for m in metrics
        ]
        costs = [cost_cell(row, "training_seconds"), cost_cell(row, "inference_passes")]
        rows.append([short_name(row), str(len(row.runs) or ""), *values, epochs_cell(row), *costs])
    heads = ["seeds", *map(heading, metrics), "best epoch", "training min", "passes"]
    return markdown(heads, rows)


def short_name(row: Row) -> str:
    """The name of a row without the number of labels, which the heading says."""
    return re.sub(r" \(\d+ labels(, published)?\)$", r"\1", row.name)


def epochs_cell(row: Row) -> str:
    """Best epoch of every seed, and how many there were; means over the networks of an ensemble."""
    cells = []
    for run in row.runs:
        best, last = run.about.get("best_epochs"), run.about.get("training_epochs")
        if best and last and None not in best:
            cells.append(f"{statistics.fmean(best):.0f}/{statistics.fmean(last):.0f}")
    return ", ".join(cells)


def effect_table(comparison: Comparison) -> list[str]:
    """Differences to a baseline in percent of it."""
    rows = [row for row in comparison.rows if row.effect]
    if not rows:
        return []
    metrics = comparison.metrics
    cells = [[short_name(row), *(effect_cell(row, m) for m in metrics)] for row in rows]
    title = (
        f"In percent of {short_name(comparison.rows[0])}, 95% interval over {comparison.resampled}:"
    )
    return [title, markdown([METRICS[m].title for m in metrics], cells)]


def class_table(comparison: Comparison) -> list[str]:
    """AUROC of each class, where there are few."""
    ours = [row for row in comparison.rows if row.runs]
    names = [one["name"] for one in ours[0].runs[0].about["classes"]]
    if len(names) > MOST_CLASSES:
        return []
    rows = []
    for row in ours:
        values = [[one["auroc"] for one in run.about["classes"]] for run in row.runs]
        rows.append([short_name(row), *map(auroc_cell, zip(*values, strict=True))])
    title = "AUROC of the probability of each class against the others:"
    return [title, markdown(names, rows)]


def auroc_cell(values: Sequence[float]) -> str:
    """Mean and, of several, standard deviation."""
    text = f"{statistics.fmean(values):.3f}"
    return text if len(values) == 1 else f"{text} ± {statistics.stdev(values):.3f}"


def range_table(comparison: Comparison) -> list[str]:
    """AURC and ECE of the images of each range of ids, mean over seeds; not of a single range."""
    ours = [row for row in comparison.rows if row.runs]
    cases = list(ours[0].runs[0].counts.summaries)
    chosen = {name: images_in(cases, *bounds) for name, bounds in ID_RANGES.items()}
    chosen = {name: images for name, images in chosen.items() if images}
    if any(len(images) == len(cases) for images in chosen.values()):
        return []
    heads = [
        f"{heading(m)}, {name} ({len(images)} images)"
        for name, images in chosen.items()
        for m in SHIFT_METRICS
    ]
    rows = []
    for row in ours:
        cells = [short_name(row)]
        for images in chosen.values():
            values = [metrics_of(run, images) for run in row.runs]
            cells += [mean_cell([one[m] for one in values], m) for m in SHIFT_METRICS]
        rows.append(cells)
    left_out = len(cases) - sum(map(len, chosen.values()))
    others = f"; {left_out} images with other ids are left out" if left_out else ""
    title = f"By range of ISIC ids (the hold-out cut into images of different origin{others}):"
    return [title, markdown(heads, rows)]


def images_in(cases: Sequence[str], low: int, high: int) -> list[str]:
    """Cases whose ISIC number is in a range, both ends included."""
    return [case for case in cases if low <= int(case.rpartition("_")[2]) <= high]


def metrics_of(run: Evaluated, images: Sequence[str]) -> dict[str, float]:
    """Metrics of the pooled pixels of some images."""
    chosen = [run.counts.summaries[case] for case in images]
    values = resampled_metrics(chosen, np.ones((1, len(chosen))))
    return {name: float(value[0]) for name, value in values.items()}


def mean_cell(values: Sequence[float], metric: str) -> str:
    """Mean and, of several, standard deviation in the scale of tables."""
    text = scaled(statistics.fmean(values), metric)
    return text if len(values) == 1 else f"{text} ± {scaled(statistics.stdev(values), metric)}"


def shift_table(comparison: Comparison) -> list[str]:
    """Home, away and each corruption (mean of its strengths), of runs that were measured so."""
    rows, kinds = [], []
    for row in comparison.rows:
        measured = [shift_of(run.path) for run in row.runs if (run.path / SHIFT_FILE).is_file()]
        if not measured:
            continue
        kinds = list(measured[0])
        cells = [
            mean_cell([one[k][m] for one in measured], m) for k in kinds for m in SHIFT_METRICS
        ]
        rows.append([short_name(row), str(len(measured)), *cells])
    if not rows:
        return []
    heads = ["seeds", *(f"{heading(m)}, {kind}" for kind in kinds for m in SHIFT_METRICS)]
    title = "At home and under corruptions (mean of three strengths each; away: mean of all):"
    return [title, markdown(heads, rows)]


def shift_of(folder: Path) -> dict[str, dict[str, float]]:
    """What `shift.py` measured: home, away, and the mean of the strengths of each corruption."""
    rows: Mapping[str, dict[str, float]] = read_json(folder / SHIFT_FILE)["images"]
    kinds: dict[str, list[dict[str, float]]] = {}
    for name, values in rows.items():
        kind = name.rstrip("0123456789 ")
        kinds.setdefault(kind, []).append(values)
        if kind != "home":
            kinds.setdefault("away", []).append(values)
    order = ["home", "away", *(kind for kind in kinds if kind not in {"home", "away"})]
    return {
        kind: {m: statistics.fmean(one[m] for one in kinds[kind]) for m in SHIFT_METRICS}
        for kind in order
    }


def tried(results: Path = RESULTS) -> str:
    """How many configurations were tried, and which; nothing where no list is kept."""
    file = results / "tried.csv"
    if not file.is_file():
        return ""
    rows = read_table(file, ["method", "configuration"], error=DataError, way_out="Correct it.")
    table = markdown(list(rows[0])[1:], [list(row.values()) for row in rows])
    judged = "20 of 220 images labeled, judged on 500 training images that no run was trained with"
    return f"### Tried\n\n{len(rows)} configurations, {judged}:\n\n{table}\n"


def write(report: Path, parts: Sequence[str]) -> None:
    """Exchange what stands between the marks of a report."""
    text = read_text(report)
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"{report}: has no place for tables. Put {BEGIN} and {END} into it.")
    body = "\n".join(part for part in parts if part)
    write_text(report, f"{before}{BEGIN}\n\n{body}\n{END}{after}")


def main() -> None:
    """Keep results, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("keep", help="copy the evaluations of a benchmark")
    keeping.add_argument("benchmark", type=Path)
    keeping.add_argument("--protocol", required=True)
    keeping.add_argument("--evaluation", help="only this folder of the evaluations of every run")
    commands.add_parser("write", help="write the tables into the reports")
    options = parser.parse_args()
    if options.command == "write":
        for task, report in REPORTS.items():
            settings = tried() if task == "segmentation" else ""
            write(RESULTS / report, [*sections(task=task), settings])
        return
    only = {} if options.evaluation is None else {options.evaluation: ""}
    kept = keep(options.benchmark, RUNS / options.protocol, only or EVALUATIONS)
    size = sum(file.stat().st_size for folder in kept for file in folder.iterdir())
    print(f"{len(kept)} evaluations, {size / 1e6:.2f} MB in {RUNS / options.protocol}")


if __name__ == "__main__":
    main()
