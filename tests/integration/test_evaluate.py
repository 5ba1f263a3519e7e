"""`segconf evaluate` on a run with an untrained network: every number checked another way."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from segconf.calibration.calibrate import calibrate
from segconf.checkpoints.weights import load_checkpoint, save_checkpoint, weights_hash
from segconf.comparison.compare import compare
from segconf.comparison.tables import as_markdown
from segconf.data.datasets.dataset import find_cases
from segconf.errors import CheckpointError, DataError, TrainingError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.images.masks import read_mask
from segconf.inference.model import load_model
from segconf_cli.main import app
from tests.conftest import write_folder
from tests.references import metrics as reference
from tests.untrained_runs import untrained_run

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def run(tmp_path):
    """Run folder of a ResNet18 UNet on discs: the images have the size of the network's grid."""
    folder, _ = untrained_run(tmp_path, training=4, validation=4, test=5)
    return folder.path


def test_metrics_agree_with_the_slow_reference(run):
    evaluation = evaluate(run, EvaluationOptions("test", device="cpu"))
    model = load_checkpoint(run).model
    pixels, labels = [], []
    for case in find_cases(json.loads((run / "split.json").read_text())["dataset"]).test:
        image = (np.array(Image.open(case.image_path)) / 255 - MEAN) / STD
        batch = torch.from_numpy(image.transpose(2, 0, 1)[None]).float()
        with torch.no_grad():
            logits = model(batch)[0]
        pixels += logits.flatten(1).T.tolist()
        labels += (np.array(Image.open(case.mask_path)) // 255).ravel().tolist()
    expected = reference.evaluate(pixels, labels)
    values = evaluation.report.metrics["all"]["strict"]
    for name in ("miou", "aurc", "ece", "nll", "brier"):
        assert values[name] == pytest.approx(expected[name], rel=1e-3), name
    assert evaluation.report.about["pixels"] == 5 * 32 * 32


def test_command_writes_the_report_and_prints_the_table(run):
    result = CliRunner().invoke(app, ["evaluate", str(run)])
    assert result.exit_code == 0, result.output
    folder = run / "evaluation/test"
    content = json.loads((folder / "metrics.json").read_text())
    strict = content["metrics"]["all"]["strict"]
    assert f"{1e3 * strict['aurc']:.2f}" in result.stdout
    assert f"{strict['miou']:.3f}" in result.stdout
    assert "5 test images, 5,120 pixels, grid 32 x 32, encoder resnet18" in result.stdout
    assert set(content["metrics"]) == {"all", "boundary", "foreground"}
    low, high = content["intervals"]["aurc"]
    assert low <= strict["aurc"] <= high
    rows = list(csv.DictReader((folder / "cases.csv").read_text().splitlines()))
    assert [row["case"] for row in rows] == [f"test/case_{number}" for number in range(200, 205)]
    dice = [float(row["dice"]) for row in rows]
    assert content["per_image"]["dice"] == pytest.approx(np.mean(dice))
    for name in ("risk_coverage.png", "reliability.png"):
        assert (folder / name).stat().st_size > 5000


def test_what_a_stored_threshold_keeps_is_reported(run):
    before = evaluate(run, EvaluationOptions("val", device="cpu"))
    assert before.threshold is None
    assert json.loads((before.folder / "metrics.json").read_text())["threshold"] is None
    report = before.report
    calibrate(run, scaling="none", max_risk=0.2, device="cpu")
    fitted = load_model(run).calibration.threshold

    on_validation = evaluate(run, EvaluationOptions("val", device="cpu")).threshold
    assert 0 < on_validation.coverage < 1
    assert on_validation.confidence == fitted.confidence
    assert (on_validation.coverage, on_validation.risk) == (fitted.coverage, fitted.risk)
    assert on_validation.coverage == report.pooled.threshold_for_risk(0.2).coverage

    result = CliRunner().invoke(app, ["evaluate", str(run), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    content = json.loads((run / "evaluation/test/metrics.json").read_text())["threshold"]
    assert set(content) == {"max_risk", "confidence", "coverage", "risk"}
    kept, wrong, pixels = 0, 0, 0
    model = load_checkpoint(run).model
    for case in find_cases(json.loads((run / "split.json").read_text())["dataset"]).test:
        image = (np.array(Image.open(case.image_path)) / 255 - MEAN) / STD
        with torch.no_grad():
            logits = model(torch.from_numpy(image.transpose(2, 0, 1)[None]).float())[0]
        confidence, prediction = logits.double().softmax(0).max(0)
        above = confidence >= fitted.confidence
        truth = torch.from_numpy(np.array(Image.open(case.mask_path)) // 255)
        kept += int(above.sum())
        wrong += int((prediction != truth)[above].sum())
        pixels += above.numel()
    assert content["max_risk"] == 0.2
    assert content["coverage"] == pytest.approx(kept / pixels, abs=2e-3)
    assert content["risk"] == pytest.approx(wrong / kept, abs=2e-3)
    assert f"{content['risk']:.2%} of them wrong; the run promises at most 20.00%" in result.stdout


def test_promised_and_kept_losses_are_reported(run):
    # The thresholds of an untrained network must be wide for such a promise: 1 / (4 + 1) = 0.2.
    calibrate(run, scaling="none", guarantees=(0.85, 0.1), device="cpu")
    stored = load_model(run).calibration.contours
    result = CliRunner().invoke(app, ["evaluate", str(run), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    content = json.loads((run / "evaluation/test/metrics.json").read_text())
    found = content["guarantees"]
    assert [(one["kind"], one["class"], one["alpha"]) for one in found] == [
        (one.kind, one.class_index, one.alpha) for one in stored if one.threshold is not None
    ]
    assert {one["alpha"] for one in found} == {0.85}
    thresholds = {one.kind: one.threshold for one in stored if one.threshold is not None}
    missed, wrong, areas, lesion = [], [], {"outer": 0, "inner": 0}, 0
    model = load_checkpoint(run).model
    for case in find_cases(json.loads((run / "split.json").read_text())["dataset"]).test:
        image = (np.array(Image.open(case.image_path)) / 255 - MEAN) / STD
        with torch.no_grad():
            logits = model(torch.from_numpy(image.transpose(2, 0, 1)[None]).float())[0]
        probability = logits.double().softmax(0)[1].numpy()
        truth = np.array(Image.open(case.mask_path)) > 0
        sets = {kind: probability >= threshold for kind, threshold in thresholds.items()}
        missed.append((truth & ~sets["outer"]).sum() / truth.sum())
        wrong.append((sets["inner"] & ~truth).sum() / max(1, sets["inner"].sum()))
        areas = {kind: areas[kind] + sets[kind].sum() for kind in sets}
        lesion += truth.sum()
    outer, inner = found
    assert outer["measured"] == pytest.approx(np.mean(missed), abs=5e-3)
    assert inner["measured"] == pytest.approx(np.mean(wrong), abs=5e-3)
    band = (areas["outer"] - areas["inner"]) / lesion
    assert outer["band_fraction"] == inner["band_fraction"] == pytest.approx(band, abs=0.02)
    assert outer["low"] <= outer["measured"] <= outer["high"]
    assert f"promised at most 85.0%: kept {outer['measured']:.1%}" in result.stdout
    assert "nothing is promised" in result.stdout.replace("\n", " ")
    assert (run / "evaluation/test/guarantees.png").stat().st_size > 5000
    assert content["referral_guarantee"] is None
    table = as_markdown(compare([run]))
    assert "band at 0.85" in table
    assert f"{outer['band_fraction']:.3f}" in table


def test_what_the_page_shades_is_measured(run):
    calibrated = CliRunner().invoke(app, ["calibrate", str(run)])
    assert calibrated.exit_code == 0, calibrated.output
    result = CliRunner().invoke(app, ["evaluate", str(run)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    content = json.loads((run / "evaluation/test/metrics.json").read_text())
    model = load_model(run, device="cpu")
    shaded, wrong = [], []
    for case in find_cases(json.loads((run / "split.json").read_text())["dataset"]).test:
        maps = model.predict(case.image_path)
        shaded.append(maps.confidence < model.scale.shaded)
        wrong.append(maps.mask != (np.array(Image.open(case.mask_path)) > 0))
    shaded, wrong = np.stack(shaded), np.stack(wrong)
    for name, chosen in (("shaded", shaded), ("clear", ~shaded)):
        rate = content["page"][name]["all"]
        assert rate["fraction"] == pytest.approx(chosen.mean(), abs=2e-3)
        if chosen.any():
            assert rate["error_rate"] == pytest.approx(wrong[chosen].mean(), abs=5e-3)
            assert f"{rate['error_rate']:.2%} of them wrong (near the outline" in result.stdout
    for band in content["error_bands"]:
        assert f"{band['confidence'][0]:.3f}" in result.stdout
    assert f"reached {content['expected_dice']['mean_dice']:.3f}" in result.stdout


def test_threshold_is_fitted_on_validation_images_and_stored(run):
    found = calibrate(run, max_risk=0.2, device="cpu").calibration
    before = (run / "calibration.json").read_bytes()
    on_validation = evaluate(run, EvaluationOptions("val", device="cpu"))
    assert (run / "calibration.json").read_bytes() == before  # evaluating fits nothing
    assert load_model(run).calibration.threshold == found.threshold
    assert 0 < found.threshold.coverage < 1
    stored = json.loads(before)["threshold"]
    assert stored["confidence"] == found.threshold.confidence
    assert load_model(run).scale.measured
    fitted = on_validation.report.pooled.threshold_for_risk(0.2)
    assert found.threshold.coverage == fitted.coverage
    assert found.threshold.confidence == fitted.confidence


def test_the_run_stays_as_it_is_and_its_weights_are_named(run):
    def files():
        found = (path for path in run.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in found if "evaluation" not in path.parts}

    before = files()
    evaluation = evaluate(run, EvaluationOptions("test", device="cpu"))
    assert files() == before
    named = json.loads((evaluation.folder / "metrics.json").read_text())["weights_sha256"]
    assert named == weights_hash(run) == load_model(run).weights_sha256
    assert (
        compare([run]).rows[0].values["aurc"] == evaluation.report.metrics["all"]["strict"]["aurc"]
    )
    checkpoint = load_checkpoint(run)
    other = {name: value + 1 for name, value in checkpoint.model.state_dict().items()}
    save_checkpoint(run / "best.safetensors", other, checkpoint.config)
    with pytest.raises(CheckpointError, match=f"segconf evaluate {run}"):
        compare([run])


def test_native_grid_evaluates_what_predict_saves(run, tmp_path):
    images = tmp_path / "big"
    write_folder(images, 3, size=(50, 70))
    write_folder(images / "val", 2, first=100, size=(40, 60))
    write_folder(images / "test", 3, first=200, size=(50, 70))
    values = json.loads((run / "split.json").read_text()) | {"dataset": str(images)}
    (run / "split.json").write_text(json.dumps(values))
    evaluation = evaluate(run, EvaluationOptions("test", native=True, device="cpu"))
    model = load_model(run)
    for row in evaluation.report.cases:
        name = row.case.removeprefix("test/")
        found = model.predict(images / "test/images" / f"{name}.png").mask > 0
        truth = read_mask(images / "test/masks" / f"{name}.png") > 0
        assert row.dice == pytest.approx(2 * (found & truth).sum() / (found.sum() + truth.sum()))
    assert evaluation.report.about["pixels"] == 3 * 50 * 70


def test_two_processes_give_the_same_files(run, tmp_path):
    command = ["evaluate", str(run), "--device", "cpu", "--out"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "one")])
    assert result.exit_code == 0, result.output
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", "0", "--rdzv-backend", "c10d"]
    torchrun += ["--rdzv-endpoint", "127.0.0.1:0"]
    subprocess.run(
        [*torchrun, "-m", "segconf_cli", *command, tmp_path / "two"],
        check=True,
        capture_output=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    one, two = tmp_path / "one", tmp_path / "two"
    assert (one / "cases.csv").read_text() == (two / "cases.csv").read_text()
    metrics = [json.loads((folder / "metrics.json").read_text()) for folder in (one, two)]
    for content in metrics:
        assert content.pop("inference_seconds_per_image") > 0  # the one that is measured anew
    assert metrics[0] == metrics[1]


def test_mistakes_are_explained(run, tmp_path):
    with pytest.raises(TrainingError, match="not a run folder"):
        evaluate(tmp_path / "nowhere", EvaluationOptions())
    values = json.loads((run / "split.json").read_text())
    values["dataset"] = str(write_folder(tmp_path / "bare", 3, masks=0))
    (run / "split.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match="no test images with masks"):
        evaluate(run, EvaluationOptions("test"))
