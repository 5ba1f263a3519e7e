"""One declaration is all that a new metric needs."""

import json

import numpy as np
import pytest
import torch

from segconf.comparison.compare import compare
from segconf.comparison.tables import as_csv, as_latex, as_markdown
from segconf.evaluation.evaluator import Evaluator, Tolerances
from segconf.evaluation.report import build_report, write_report
from segconf.metrics.definitions import METRICS, Metric, heading
from segconf.metrics.selective import ratio
from segconf_cli.compare import show_comparison
from segconf_cli.report_tables import show_report

ERROR_RATE = Metric(
    name="error_rate",
    title="Error",
    definition="fraction of wrong pixels",
    value=lambda totals: ratio(totals.ranking.wrong, totals.ranking.pixels),
    exponent=2,
)


@pytest.fixture
def reports(tmp_path, monkeypatch):
    """Reports of two methods, written while there is one more metric."""
    monkeypatch.setitem(METRICS, ERROR_RATE.name, ERROR_RATE)
    generator = np.random.default_rng(0)
    found = {}
    for method, noise in (("softmax", 2.0), ("consistency", 1.0)):
        evaluator = Evaluator(2, Tolerances())
        for number in range(5):
            mask = (generator.random((8, 8)) < 0.4).astype(np.uint8)
            logit = 3 * (mask - 0.5) + generator.normal(0, noise, mask.shape)
            logits = torch.from_numpy(np.stack([np.zeros_like(logit), logit]))
            evaluator.add_logits(f"case {number}", logits, mask)
        about = {"run": method, "method": method, "labeled": 250, "split": "test"}
        about |= {"grid": "8 x 8", "encoder": "none"}
        found[method] = build_report(evaluator, about)
        write_report(found[method], tmp_path / method / "evaluation/test")
    return tmp_path, found


def test_it_is_computed_with_an_interval_and_written(reports):
    folder, found = reports
    report = found["softmax"]
    for values in (report.metrics["all"]["strict"], report.metrics["boundary"]["paper"]):
        assert values["error_rate"] == pytest.approx(1 - values["accuracy"])
    low, high = report.intervals["accuracy"]
    assert report.intervals["error_rate"] == pytest.approx((1 - high, 1 - low))
    content = json.loads((folder / "softmax/evaluation/test/metrics.json").read_text())
    assert content["definitions"]["error_rate"] == "fraction of wrong pixels"
    assert set(content["definitions"]) == set(METRICS)


def test_it_is_a_row_and_a_column_of_the_tables(reports, capsys):
    folder, found = reports
    show_report(found["softmax"])
    errors = found["softmax"].metrics["all"]["strict"]["error_rate"]
    row = next(line for line in capsys.readouterr().out.splitlines() if "Error x10^2" in line)
    assert f"{100 * errors:.2f}" in row
    comparison = compare([folder / name for name in found], paper=250)
    heads, _, softmax, *_, published = as_markdown(comparison).split("\n\n")[0].splitlines()
    assert heads.split(" | ")[-1] == f"{heading('error_rate')} |"
    assert softmax.split(" | ")[-1].strip("* |") == f"{100 * errors:.2f}"
    assert published.split(" | ")[-1].strip("* |") == ""  # the paper does not know it
    assert "error_rate_difference_low" in as_csv(comparison).splitlines()[0]
    latex = as_latex(comparison)
    assert r"Error $\times 10^2$" in latex
    assert "$$" not in latex
    show_comparison(comparison)
    assert f"{100 * errors:.2f}" in capsys.readouterr().out


def test_evaluations_from_before_it_was_declared_are_compared_without_it(reports, monkeypatch):
    folder, found = reports
    late = Metric("late", "Late", "never computed", ERROR_RATE.value)
    monkeypatch.setitem(METRICS, late.name, late)
    assert "late" not in compare([folder / name for name in found]).metrics
