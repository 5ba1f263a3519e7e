"""Runs side by side: means over seeds, best values, paired differences, and the published rows."""

import csv
import json
import math
import shutil
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from segconf.checkpoints.weights import save_checkpoint, weights_hash
from segconf.comparison.compare import compare, compare_evaluated, read_evaluation
from segconf.comparison.published import PUBLISHED_METRICS as BY_TASK
from segconf.comparison.tables import (
    as_csv,
    as_latex,
    as_markdown,
    is_best,
    known_costs,
    write_comparison,
)
from segconf.config.schema import ExperimentConfig
from segconf.errors import CheckpointError, ConfigError, TrainingError
from segconf.evaluation.evaluator import Evaluator, Tolerances
from segconf.evaluation.image_counts import load_image_counts, save_image_counts
from segconf.evaluation.report import build_report, write_report
from segconf.metrics.bootstrap import bootstrap_differences, draw_units, resampled_metrics
from segconf.metrics.definitions import heading, scaled
from segconf.runs.epochs import training_seconds
from segconf_cli.display import results
from segconf_cli.main import app

PUBLISHED_METRICS = BY_TASK["segmentation"]


def evaluated(folder, *, method, seed, noise, images=6, **about):
    """The evaluation of a run whose logits are as bad as `noise` says."""
    truth = np.random.default_rng(0)
    generator = np.random.default_rng([seed, int(10 * noise)])
    evaluator = Evaluator(2, Tolerances())
    for number in range(images):
        mask = (truth.random((8, 8)) < 0.4).astype(np.uint8)
        logit = 3 * (mask - 0.5) + generator.normal(0, noise, mask.shape)
        logits = torch.from_numpy(np.stack([np.zeros_like(logit), logit]))
        group = about.get("groups", {}).get(number)
        name = about.get("names", "case {number}").format(number=number)
        evaluator.add_logits(name, logits, mask, group=group)
    about = {"labeled": 20, "grid": "8 x 8", "run": folder.name} | about
    about |= {"method": method, "seed": seed}
    report = build_report(evaluator, about)
    write_report(report, folder / "evaluation/test")
    return report


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Three evaluations, which are made once."""
    folder = tmp_path_factory.mktemp("runs")
    names = {
        "soft0": ("softmax", 0, 2.0),
        "soft1": ("softmax", 1, 2.0),
        "ours": ("consistency", 0, 1),
    }
    reports = {
        name: evaluated(folder / name, method=method, seed=seed, noise=noise)
        for name, (method, seed, noise) in names.items()
    }
    return folder, reports


@pytest.fixture
def runs(written, tmp_path):
    """A copy of them, which a test may change."""
    folder, reports = written
    return shutil.copytree(folder, tmp_path, dirs_exist_ok=True), reports


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
    assert not any(is_best(comparison, published, metric) for metric in PUBLISHED_METRICS)


def test_differences_refer_to_the_baseline(runs):
    folder, reports = runs
    paths = [folder / name for name in reports]
    softmax, ours = compare(paths).rows
    assert not softmax.difference
    low, high = ours.difference["aurc"]
    assert low < ours.values["aurc"] - softmax.values["aurc"] < high < 0
    reverse = compare(paths, baseline="consistency")
    assert [row.name for row in reverse.rows] == [ours.name, softmax.name]  # the baseline first
    assert reverse.rows[1].difference["aurc"] == pytest.approx((-high, -low))
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
    assert markdown.splitlines()[0] == "| | " + " | ".join(map(heading, PUBLISHED_METRICS)) + " |"
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
    masks = read_evaluation(folder / "soft0", "test")
    labels = replace(masks, about={**masks.about, "classes": ["a", "b", "c"]})
    with pytest.raises(ConfigError, match=r"\(labels of 3 classes and masks\)"):
        compare_evaluated([masks, labels], split="test")
    with pytest.raises(ConfigError, match="grid native"):
        compare([folder / "soft0", folder / "other"])
    with pytest.raises(TrainingError, match="nowhere: not a run folder"):
        compare([folder / "nowhere"])
    with pytest.raises(ConfigError, match="125, 250, 500, 2000"):
        compare([folder / "soft0"], paper=100)


def test_what_is_written_comes_back(runs):
    folder, reports = runs
    path = folder / "ours/evaluation/test/images.npz"
    counts = load_image_counts(path, way_out="Evaluate again.")
    summaries, curve, reliability = counts.summaries, counts.curve, counts.reliability
    assert counts.groups == list(summaries)
    assert list(summaries) == [f"case {number}" for number in range(6)]
    for loaded, kept in zip(summaries.values(), reports["ours"].summaries, strict=True):
        for field in fields(kept):
            np.testing.assert_array_equal(getattr(loaded, field.name), getattr(kept, field.name))
    assert curve.aurc == reports["ours"].metrics["all"]["strict"]["aurc"]
    assert reliability.ece == reports["ours"].metrics["all"]["strict"]["ece"]
    assert reliability.count.sum() == 6 * 64


def kept_alone(run, folder):
    """An evaluation in its compact form, without its run."""
    counts = load_image_counts(run / "evaluation/test/images.npz", way_out="").compact()
    folder.mkdir(parents=True)
    save_image_counts(folder / "images.npz", counts)
    (folder / "metrics.json").write_text((run / "evaluation/test/metrics.json").read_text())
    return folder


def test_an_evaluation_that_is_kept_without_its_run_is_compared_as_well(runs, tmp_path):
    folder, reports = runs
    kept = [kept_alone(folder / name, tmp_path / "kept" / name) for name in reports]
    one, other = compare([folder / name for name in reports]), compare(kept)
    for row, same in zip(one.rows, other.rows, strict=True):
        assert (row.name, row.values, row.spread) == (same.name, same.values, same.spread)
    for metric in ("miou", "aurc", "ece", "nll", "brier"):
        pair = other.rows[1].difference[metric]
        assert pair == pytest.approx(one.rows[1].difference[metric], rel=0.02, abs=2e-4), metric


def test_a_kept_evaluation_and_a_whole_one_share_a_row(runs, tmp_path):
    folder, _ = runs
    kept = kept_alone(folder / "soft0", tmp_path / "kept")
    comparison = compare([kept, folder / "soft1"])
    write_comparison(comparison, tmp_path / "out")
    assert (tmp_path / "out/curves.png").stat().st_size > 5000
    assert len(comparison.rows) == 1


def test_a_metric_that_is_not_defined_is_never_the_best(runs):
    folder, reports = runs
    comparison = compare([folder / name for name in reports])
    softmax, ours = comparison.rows
    softmax.values["fpr95"] = math.nan
    assert comparison.best("fpr95") == ours.values["fpr95"]
    assert is_best(comparison, ours, "fpr95")
    assert not is_best(comparison, softmax, "fpr95")


def test_weights_of_the_last_epoch_are_a_row_of_their_own(runs):
    folder, _ = runs
    put_weights(folder / "soft0", 1.0)
    with_costs(folder / "soft0", weights="last", weights_sha256="of other weights")
    names = [row.name for row in compare([folder / "soft1", folder / "soft0"]).rows]
    assert names == ["softmax (20 labels)", "softmax, last epoch (20 labels)"]


def test_differences_resample_groups(tmp_path):
    paths = {}
    for name, groups in (("alone", {}), ("grouped", dict(enumerate("aabbcc")))):
        for method, noise in (("softmax", 2.0), ("consistency", 1.0)):
            paths[name, method] = tmp_path / f"{name}-{method}"
            evaluated(paths[name, method], method=method, seed=0, noise=noise, groups=groups)
    own = compare([paths["alone", "softmax"], paths["alone", "consistency"]])
    grouped = compare([paths["grouped", "softmax"], paths["grouped", "consistency"]])
    assert (own.resampled, grouped.resampled) == ("images", "groups")
    weights = draw_units("aabbcc", torch.Generator().manual_seed(0))
    sides = [
        [resampled_metrics(list(row.runs[0].counts.summaries.values()), weights)]
        for row in (grouped.rows[1], grouped.rows[0])
    ]
    expected = bootstrap_differences(*sides, torch.Generator())
    assert grouped.rows[1].difference == expected.absolute
    assert grouped.rows[1].difference != own.rows[1].difference
    with pytest.raises(ConfigError, match="different groups of the same images"):
        compare([paths["alone", "softmax"], paths["grouped", "consistency"]])


def seeds_of(folder, method, noise, seeds):
    paths = [folder / f"{method}{seed}" for seed in seeds]
    for path, seed in zip(paths, seeds, strict=True):
        evaluated(path, method=method, seed=seed, noise=noise)
    return paths


@pytest.fixture(scope="module")
def three_seeds(tmp_path_factory):
    """Runs of both methods with the same three seeds."""
    folder = tmp_path_factory.mktemp("seeds")
    soft = seeds_of(folder, "softmax", 2.0, (0, 1, 2))
    return soft, seeds_of(folder, "consistency", 1.0, (0, 1, 2))


def test_several_seeds_are_resampled_with_the_images(three_seeds):
    soft, ours = three_seeds
    comparison = compare([*soft, *ours[::-1]])
    assert comparison.resampled == "images and seeds"
    assert compare([soft[0], ours[0]]).resampled == "images"
    softmax, row = comparison.rows
    assert [run.about["seed"] for run in row.runs] == [0, 1, 2]
    weights = draw_units("abcdef", torch.Generator().manual_seed(0))
    sides = [
        [resampled_metrics(list(run.counts.summaries.values()), weights) for run in one.runs]
        for one in (row, softmax)
    ]
    expected = bootstrap_differences(*sides, torch.Generator().manual_seed(1), paired_seeds=True)
    assert row.difference == expected.absolute
    effect = row.effect["aurc"]
    assert effect.value == pytest.approx(row.values["aurc"] / softmax.values["aurc"] - 1)
    assert (effect.low, effect.high) == expected.relative["aurc"]
    assert effect.low < effect.value < effect.high < 0
    # Other seeds than those of the baseline: each side draws its own.
    apart = compare([*soft, *ours[:2]]).rows[1]
    expected = bootstrap_differences(sides[0][:2], sides[1], torch.Generator().manual_seed(1))
    assert apart.difference == expected.absolute


def test_effects_are_in_every_table(three_seeds):
    paths = [path for seeds in three_seeds for path in seeds[:2]]
    comparison = compare(paths)
    softmax, row = comparison.rows
    effect = row.effect["aurc"]
    percent = 100 * (row.values["aurc"] - softmax.values["aurc"]) / softmax.values["aurc"]
    text = f"{percent:.1f} ({100 * effect.low:.1f} to {100 * effect.high:.1f})"
    assert text in as_markdown(comparison)
    assert "95% interval over images and seeds:" in as_markdown(comparison)
    rows = list(csv.DictReader(as_csv(comparison).splitlines()))
    assert float(rows[1]["aurc_effect"]) == effect.value
    assert float(rows[1]["aurc_effect_high"]) == effect.high
    assert rows[0]["aurc_effect"] == ""
    shown_text = shown(200, *map(str, paths))
    assert text in shown_text
    assert "minus softmax, 95% intervals over images and seeds" in shown_text
    assert "the same in percent of softmax" in shown_text


def test_undefined_values_are_null_in_json(tmp_path):
    evaluator = Evaluator(2, Tolerances())
    logits = torch.tensor([[[2.0, 2.0]], [[0.0, 0.0]]])
    evaluator.add_logits("empty", logits, np.zeros((1, 2), np.uint8))
    write_report(build_report(evaluator, {"method": "softmax"}), tmp_path)
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content["per_image"]["dice"] is None
    assert content["metrics"]["all"]["strict"]["fpr95"] is None
    assert content["metrics"]["all"]["strict"]["accuracy"] == 1.0
    assert content["confusion"] == [[2, 0], [0, 0]]


def with_costs(folder, **costs):
    path = folder / "evaluation/test/metrics.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | costs))


def test_costs_are_columns_where_they_are_known(runs):
    folder, reports = runs
    names = ("training_seconds", "inference_passes", "inference_seconds_per_image")
    for run, values in {"soft0": (60.0, 1, 0.01), "soft1": (120.0, 1, 0.02)}.items():
        with_costs(folder / run, **dict(zip(names, values, strict=True)))
    with_costs(folder / "ours", training_seconds=None, inference_passes=50)
    comparison = compare([folder / name for name in reports], paper=125)
    lines = as_markdown(comparison).splitlines()
    assert lines[0].endswith("| Brier x10^2 | training min | passes | ms/image |")
    assert lines[1].count("---:") == len(PUBLISHED_METRICS) + 3
    assert lines[2].endswith("| 1.5 | 1 | 15.0 |")  # means of 1 and 2 minutes, of 10 and 20 ms
    assert lines[3].endswith("|  | 50 |  |")
    assert all(line.count("|") == len(PUBLISHED_METRICS) + 5 for line in lines[:10])
    rows = list(csv.DictReader(as_csv(comparison).splitlines()))
    assert [row["training_seconds"] for row in rows[:3]] == ["90.0", "", ""]
    assert float(rows[0]["inference_seconds_per_image"]) == pytest.approx(0.015)
    latex = as_latex(comparison).splitlines()
    assert latex[0] == r"\begin{tabular}{l" + "r" * (len(PUBLISHED_METRICS) + 3) + "}"
    cells = [line.count("&") for line in latex if "&" in line]
    assert set(cells) == {len(PUBLISHED_METRICS) + 3}


def test_without_costs_there_are_no_columns_for_them(runs):
    folder, reports = runs
    assert known_costs(compare([folder / name for name in reports])) == ()


def test_calibrated_runs_are_rows_of_their_own(runs):
    folder, reports = runs
    with_costs(folder / "soft1", temperature=1.7)
    with_costs(folder / "soft0", temperature=1.0)
    rows = compare([folder / name for name in reports]).rows
    assert [row.name for row in rows] == [
        "softmax (20 labels)",
        "softmax + temperature (20 labels)",
        "consistency (20 labels)",
    ]


def test_training_time_is_the_sum_of_the_epochs(tmp_path):
    assert training_seconds(tmp_path) is None
    header = "epoch,training_seconds,validation_seconds\n"
    # Epoch 1 was repeated after a crash.
    (tmp_path / "timing.csv").write_text(header + "0,2.5,9\n1,3.0,9\n1,3.5,9\n2,4.0,9\n")
    assert training_seconds(tmp_path) == 2.5 + 3.5 + 4.0
    for member, seconds in (("0", 10), ("1", 20)):
        folder = tmp_path / "ensemble/members" / member
        folder.mkdir(parents=True)
        (folder / "timing.csv").write_text(f"{header}0,{seconds},1\n1,{seconds},1\n")
    assert training_seconds(tmp_path / "ensemble") == 60
    (tmp_path / "timing.csv").write_text("something else\n1\n")
    with pytest.raises(CheckpointError, match="times of a training"):
        training_seconds(tmp_path)


def put_weights(run, value):
    """A weights file, and its hash in the evaluation."""
    save_checkpoint(run / "best.safetensors", {"w": torch.full((3,), value)}, ExperimentConfig())
    with_costs(run, weights_sha256=weights_hash(run))


def test_evaluations_of_other_weights_are_refused(runs):
    folder, reports = runs
    paths = [folder / name for name in reports]
    for number, path in enumerate(paths):
        put_weights(path, float(number))
    assert len(compare(paths).rows) == 2
    other = {"w": torch.full((3,), 7.0)}
    save_checkpoint(paths[1] / "best.safetensors", other, ExperimentConfig())
    with pytest.raises(CheckpointError, match=rf"other weights.*segconf evaluate {paths[1]}$"):
        compare(paths)
    (paths[1] / "best.safetensors").unlink()  # nothing contradicts the evaluation
    assert len(compare(paths).rows) == 2


def test_an_evaluation_without_a_hash_is_refused_beside_weights(runs):
    folder, _ = runs
    file = folder / "ours" / "best.safetensors"
    save_checkpoint(file, {"w": torch.ones(2)}, ExperimentConfig())
    with pytest.raises(CheckpointError, match="segconf evaluate"):
        compare([folder / "ours"])


def shown(columns, *arguments):
    """What `segconf compare` prints on a terminal of so many columns."""
    results.cache_clear()  # a console keeps its width
    result = CliRunner().invoke(app, ["compare", *arguments], env={"COLUMNS": str(columns)})
    results.cache_clear()
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tables_fit_a_terminal_of_80_columns(runs):
    folder, _ = runs
    with_costs(folder / "soft0", temperature=1.3, training_seconds=60.0)
    with_costs(folder / "soft1", temperature=1.4, training_seconds=90.0)
    for extra in ("aleatoric", "mcdropout"):
        for seed in (0, 1):
            evaluated(folder / f"{extra}{seed}", method=extra, seed=seed, noise=2.0)
    runs_ = [str(path) for path in sorted(folder.iterdir())]
    text = shown(80, *runs_, "--baseline", "consistency")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\u2026" not in text
    comparison = compare([folder / name for name in sorted(p.name for p in folder.iterdir())])
    for row in comparison.rows:
        name = row.name.removesuffix(" (20 labels)")
        cells = " ".join(line for line in lines if line.strip().startswith(name + " "))
        for metric in PUBLISHED_METRICS:
            assert f" {scaled(row.values[metric], metric)} " in cells
            assert not row.spread or f" {scaled(row.spread[metric], metric)} " in cells
    assert "standard deviation over seeds" in lines  # a table of its own: there is no room for it
    first = next(line for line in lines if line.strip().startswith("consistency "))
    assert lines.index(first) < min(n for n, line in enumerate(lines) if "softmax" in line)
    assert "test images, 20 labels" in text
    assert "minus consistency, 95% intervals over images and seeds" in text
    wide = shown(200, *runs_, "--paper", "250")
    assert "\u00b1" in wide
    # Other numbers of labels: the names say which.
    assert "consistency (250 labels, published)" in wide
