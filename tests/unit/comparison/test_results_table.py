"""Results that are kept without their runs, and the tables made from them."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks import table
from segconf.comparison.compare import compare
from segconf.comparison.tables import effect_cell
from segconf.errors import DataError
from segconf.evaluation.label_report import (
    EvaluatedLabels,
    build_label_report,
    write_label_report,
)
from segconf.metrics.definitions import scaled
from segconf.metrics.label_summary import LabelSummaries
from segconf.metrics.streaming import ConfidenceMetrics
from tests.unit.comparison.test_compare import evaluated


@pytest.fixture(scope="module")
def benchmarked(tmp_path_factory):
    """Two methods with two seeds each, which are evaluated once."""
    runs = tmp_path_factory.mktemp("benchmark")
    for method, noise in (("softmax", 2.0), ("consistency", 1.0)):
        for seed in (0, 1):
            name = f"{method}-250-seed{seed}"
            about = {"labeled": 250, "names": "ISIC_00{number:02d}500", "best_epochs": [3]}
            evaluated(
                runs / name, method=method, seed=seed, noise=noise, training_epochs=[9], **about
            )
    return runs


@pytest.fixture
def kept(benchmarked, tmp_path):
    """Where their evaluations are kept, and the runs."""
    folders = table.keep(benchmarked, tmp_path / "kept/converged")
    names = sorted(path.name for path in benchmarked.iterdir())
    assert [folder.name for folder in folders] == names
    return tmp_path / "kept", benchmarked


def rows_of(text, name):
    lines = [line for line in text.splitlines() if f"| {name} |" in line]
    return [[part.strip() for part in line.split("|")[1:-1]] for line in lines]


def test_tables_are_made_without_the_runs(kept):
    folder, runs = kept
    original = compare(sorted(runs.iterdir()))
    text = "".join(table.sections(folder))
    assert text.startswith("### Until convergence, 250 labels")
    ours = next(row for row in original.rows if row.name.startswith("consistency"))
    values, percent, ranges = rows_of(text, "consistency")
    assert values[1:3] == [
        "2",
        f"**{scaled(ours.values['miou'], 'miou')} ± {scaled(ours.spread['miou'], 'miou')}**",
    ]
    assert values[-3] == "3/9, 3/9"
    assert percent[1] == effect_cell(ours, "miou")  # it needs no ranking
    assert "95% interval over images and seeds" in text
    assert rows_of(text, "consistency, published")[0][2:4] == ["0.817", "12.79"]
    assert "At home" not in text
    # Images 0500 to 5500 of the fixture: the first is below 1000, none is in the other ranges.
    assert len(ranges) == 3
    assert "different origin; 5 images with other ids are left out):" in text


def test_ranges_of_ids():
    cases = ["ISIC_0000999", "ISIC_0001000", "ISIC_0009000", "ISIC_0012999", "ISIC_0013000"]
    found = {name: table.images_in(cases, *bounds) for name, bounds in table.ID_RANGES.items()}
    assert list(found.values()) == [cases[:1], cases[2:4], cases[4:]]


def test_an_evaluation_elsewhere_is_kept_by_its_name(tmp_path):
    for method in ("softmax", "consistency"):
        evaluation = tmp_path / "runs" / f"{method}-20-seed0" / "evaluation"
        about = {"method": method, "seed": 0, "names": "ISIC_00{number:02d}"}
        evaluated(evaluation.parent, noise=1.0, **about)
        (evaluation / "test").rename(evaluation / "left-out")
        evaluated(evaluation.parent, noise=2.0, **about)  # at home: another one
    away = tmp_path / "kept/without_below_1000_away"
    folders = table.keep(tmp_path / "runs", away, {"left-out": ""})
    assert [folder.name for folder in folders] == ["consistency-20-seed0", "softmax-20-seed0"]
    original = json.loads((evaluation / "left-out/metrics.json").read_text())
    (row, *_) = rows_of("".join(table.sections(tmp_path / "kept")), "consistency")
    assert scaled(original["metrics"]["all"]["strict"]["aurc"], "aurc") in row[3]
    (text,) = table.sections(tmp_path / "kept")
    assert text.startswith("### Trained without ids below 1000, away: only such ids, 20 labels")
    assert "range of ISIC ids" not in text  # there is only one


def test_metrics_of_all_images_are_those_of_the_evaluation(kept):
    folder, _ = kept
    (run, *_others) = table.read_kept(folder / "converged")[250]
    values = table.metrics_of(run, list(run.counts.summaries))
    for name in ("miou", "aurc", "ece", "brier"):
        assert values[name] == pytest.approx(run.metrics[name], rel=5e-3), name


def test_home_and_away(kept):
    folder, _ = kept
    images = {"home": {"aurc": 0.01, "ece": 0.02}}
    images |= {f"blur {n}": {"aurc": 0.01 * n, "ece": 0.03} for n in (1, 2, 3)}
    images |= {f"JPEG {n}": {"aurc": 0.05, "ece": 0.05} for n in (1, 2, 3)}
    file = folder / "converged/softmax-250-seed0/shift.json"
    file.write_text(json.dumps({"split": "test", "images": images}))
    text = "".join(table.sections(folder))
    row = rows_of(text, "softmax")[-1]
    assert row == [
        "softmax",
        "1",
        "10.00",
        "2.00",
        "35.00",
        "4.00",
        "20.00",
        "3.00",
        "50.00",
        "5.00",
    ]


def test_only_what_is_between_the_marks_is_exchanged(tmp_path):
    report = tmp_path / "report.md"
    report.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write(report, ["new", ""])
    table.write(report, ["new", ""])
    assert report.read_text() == f"before\n{table.BEGIN}\n\nnew\n{table.END}\nafter\n"
    report.write_text("no marks")
    with pytest.raises(DataError, match="no place for tables"):
        table.write(report, ["new"])


def test_configurations_are_counted(tmp_path):
    assert table.tried(tmp_path) == ""
    (tmp_path / "tried.csv").write_text("method,configuration,aurc\na,x,1\na,y,2\n")
    text = table.tried(tmp_path)
    assert "2 configurations" in text
    assert "| a | y | 2 |" in text


DIAGNOSES = ("nevus", "melanoma", "keratosis")


def evaluated_diagnoses(folder, *, seed):
    """The evaluation of a run with labels; returns truth and probabilities."""
    truth = np.arange(30) % 3
    noise = np.random.default_rng(seed).normal(0, 1.5, (30, 3))
    logits = torch.from_numpy(noise + 2 * np.eye(3)[truth])
    pooled = ConfidenceMetrics(num_classes=3)
    pooled.update(logits[:, :, None, None], truth[:, None, None])
    names = [f"image {number}" for number in range(30)]
    summaries = LabelSummaries.of(logits, torch.from_numpy(truth))
    probabilities = logits.softmax(dim=1).numpy()
    found = EvaluatedLabels(names, names, probabilities, pooled, summaries)
    about = {"labeled": 278, "grid": "32 x 32", "run": folder.name, "method": "softmax"}
    about |= {"seed": seed, "dataset": str(folder / "diagnoses")}
    write_label_report(build_label_report(found, DIAGNOSES, about), folder / "evaluation/test")
    return truth, probabilities


def test_labels_have_a_report_of_their_own_with_the_auroc_of_few_classes(tmp_path):
    found = [evaluated_diagnoses(tmp_path / f"runs/{seed}", seed=seed) for seed in (0, 1)]
    table.keep(tmp_path / "runs", tmp_path / "kept/diagnosis")
    kept = [file.read_text() for file in (tmp_path / "kept").glob("*/*/metrics.json")]
    assert [json.loads(text)["dataset"] for text in kept] == ["diagnoses"] * 2
    assert not any(str(tmp_path) in text for text in kept)
    (text,) = table.sections(tmp_path / "kept", "classification")
    assert list(table.sections(tmp_path / "kept")) == []
    assert text.startswith("### ISIC 2017 diagnoses, 278 labels\n\n30 hold-out images")
    areas = [roc_auc_score(truth == 1, p[:, 1]) for truth, p in found]
    melanoma = rows_of(text, "softmax")[-1][2]
    assert melanoma == f"{np.mean(areas):.3f} ± {np.std(areas, ddof=1):.3f}"
