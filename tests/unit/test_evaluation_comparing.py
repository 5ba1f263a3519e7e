"""Runs side by side: means over seeds, best values, paired differences, and the published rows."""

import json

import numpy as np
import pytest
import torch

from segconf.errors import CheckpointError, ConfigError
from segconf.evaluation.cases import Judge, Tolerances
from segconf.evaluation.comparing import (
    as_csv,
    as_latex,
    as_markdown,
    compare,
    is_best,
    write_comparison,
)
from segconf.evaluation.report import build_report, load_curves, load_summaries, write_report
from segconf.evaluation.tables import PAPER_COLUMNS, heading, scaled


def evaluated(folder, *, method, seed, noise, images=6, grid="8 x 8"):
    """The evaluation of a run whose logits are as bad as `noise` says."""
    truth = np.random.default_rng(0)
    generator = np.random.default_rng([seed, int(10 * noise)])
    judge = Judge(2, Tolerances())
    for number in range(images):
        mask = (truth.random((8, 8)) < 0.4).astype(np.uint8)
        logit = 3 * (mask - 0.5) + generator.normal(0, noise, mask.shape)
        logits = torch.from_numpy(np.stack([np.zeros_like(logit), logit]))
        judge.add_logits(f"case {number}", logits, mask)
    about = {"method": method, "labeled": 20, "seed": seed, "grid": grid, "run": folder.name}
    report = build_report(judge, about)
    write_report(report, folder / "evaluation/test")
    return report


@pytest.fixture
def runs(tmp_path):
    names = {
        "soft0": ("softmax", 0, 2.0),
        "soft1": ("softmax", 1, 2.0),
        "ours": ("consistency", 0, 1),
    }
    reports = {
        name: evaluated(tmp_path / name, method=method, seed=seed, noise=noise)
        for name, (method, seed, noise) in names.items()
    }
    return tmp_path, reports


def test_rows_are_means_over_seeds(runs):
    folder, reports = runs
    comparison = compare([folder / name for name in reports])
    assert [row.name for row in comparison.rows] == [
        "softmax (20 labels)",
        "consistency (20 labels)",
    ]
    values = [reports[name].metrics["all"]["strict"]["aurc"] for name in ("soft0", "soft1")]
    softmax, ours = comparison.rows
    assert softmax.values["aurc"] == pytest.approx(np.mean(values))
    assert softmax.spread["aurc"] == pytest.approx(np.std(values, ddof=1))
    assert not ours.spread


def test_best_values_are_marked(runs):
    folder, reports = runs
    comparison = compare([folder / name for name in reports], paper=250)
    softmax, ours = comparison.rows[:2]
    for metric in ("miou", "aurc", "brier", "nll"):
        assert is_best(comparison, ours, metric)
        assert not is_best(comparison, softmax, metric)
    published = comparison.rows[-1]
    assert published.name == "consistency (250 labels, published)"
    assert published.values["aurc"] == pytest.approx(0.01279)
    assert not any(is_best(comparison, published, metric) for metric in PAPER_COLUMNS)


def test_differences_refer_to_the_baseline(runs):
    folder, reports = runs
    paths = [folder / name for name in reports]
    softmax, ours = compare(paths).rows
    assert not softmax.difference
    low, high = ours.difference["aurc"]
    assert low < ours.values["aurc"] - softmax.values["aurc"] < high < 0
    reverse = compare(paths, baseline="consistency")
    assert reverse.rows[0].difference["aurc"] == pytest.approx((-high, -low))
    with pytest.raises(ConfigError, match="no such method"):
        compare(paths, baseline="aes")


def test_tables(runs, tmp_path):
    folder, reports = runs
    comparison = compare([folder / name for name in reports], paper=125)
    ours = reports["ours"].metrics["all"]["strict"]
    markdown = as_markdown(comparison)
    assert f"**{scaled(ours['aurc'], 'aurc')}**" in markdown
    assert (
        "| softmax (125 labels, published) | 0.801 | 34.36 | 31.33 | 60.90 | 6.45 | 3.82 | 13.96 |"
        in markdown
    )
    assert markdown.splitlines()[0] == "| | " + " | ".join(map(heading, PAPER_COLUMNS)) + " |"
    rows = as_csv(comparison).splitlines()
    header, consistency = rows[0].split(","), rows[2].split(",")
    assert float(consistency[header.index("aurc")]) == ours["aurc"]
    latex = as_latex(comparison)
    assert rf"$\mathbf{{{scaled(ours['nll'], 'nll')}}}$" in latex
    assert r"\pm" in latex
    write_comparison(comparison, tmp_path / "out")
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"table.md", "table.csv", "table.tex", "curves.png"}


def test_scales():
    assert heading("aurc") == "AURC x10^3"
    assert (scaled(0.01279, "aurc"), scaled(0.8171, "miou")) == ("12.79", "0.817")
    assert (scaled(0.0256, "ece"), scaled(0.223, "nll")) == ("2.56", "2.23")


def test_runs_that_cannot_be_compared(runs):
    folder, _ = runs
    evaluated(folder / "fewer", method="crl", seed=0, noise=1, images=5)
    evaluated(folder / "other", method="crl", seed=0, noise=1, grid="native")
    with pytest.raises(ConfigError, match="different images"):
        compare([folder / "soft0", folder / "fewer"])
    with pytest.raises(ConfigError, match="grid native"):
        compare([folder / "soft0", folder / "other"])
    with pytest.raises(CheckpointError, match="Run: segconf evaluate"):
        compare([folder / "nowhere"])
    with pytest.raises(ConfigError, match="125, 250, 500, 2000"):
        compare([folder / "soft0"], paper=100)


def test_what_is_written_comes_back(runs):
    folder, reports = runs
    path = folder / "ours/evaluation/test/images.npz"
    summaries = load_summaries(path)
    assert list(summaries) == [f"case {number}" for number in range(6)]
    for loaded, kept in zip(summaries.values(), reports["ours"].summaries, strict=True):
        np.testing.assert_array_equal(loaded.correct, kept.correct)
        assert loaded.nll == kept.nll
    curve, reliability = load_curves(path)
    assert curve.aurc == reports["ours"].metrics["all"]["strict"]["aurc"]
    assert reliability.ece == reports["ours"].metrics["all"]["strict"]["ece"]
    assert reliability.count.sum() == 6 * 64


def test_undefined_values_are_null_in_json(tmp_path):
    judge = Judge(2, Tolerances())
    logits = torch.tensor([[[2.0, 2.0]], [[0.0, 0.0]]])
    judge.add_logits("empty", logits, np.zeros((1, 2), np.uint8))
    write_report(build_report(judge, {"method": "softmax"}), tmp_path)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content["per_image"]["dice"] is None
    assert content["metrics"]["all"]["strict"]["fpr95"] is None
    assert content["metrics"]["all"]["strict"]["accuracy"] == 1.0
    assert content["confusion"] == [[2, 0], [0, 0]]
