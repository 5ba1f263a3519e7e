"""`segconf calibrate` on a tiny run: what is stored, what uses it, and what stays as it was."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from segconf.calibration.calibrate import CalibrationResult, calibrate
from segconf.calibration.calibrators import TemperatureScaling
from segconf.calibration.stored import (
    Calibration,
    StoredReferral,
    StoredReferralGuarantee,
    write_calibration,
)
from segconf.checkpoints.weight_files import read_tensors, write_tensors
from segconf.checkpoints.weights import (
    load_checkpoint,
    save_checkpoint,
    store_calibrator,
    weights_hash,
)
from segconf.errors import CheckpointError, ConfigError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.overlays.layers import Contour
from segconf.results.prediction_folder import PredictionFolder
from segconf_cli.calibrate import show_calibration
from segconf_cli.main import app
from tests.training_runs import train_tiny, use_network


@pytest.fixture
def run(folder_dataset, tmp_path, monkeypatch):
    """A trained run whose logits were then made twenty times as large."""
    use_network(monkeypatch)
    folder = tmp_path / "run"
    train_tiny(folder_dataset, folder, training__method="softmax", training__epochs=3)
    trained = load_checkpoint(folder)
    weights = trained.model.state_dict()
    for name in ("last.weight", "last.bias"):
        weights[name] = 20 * weights[name]
    save_checkpoint(folder / "best.safetensors", weights, trained.config)
    return folder


def expected_and_reached(run):
    """Expected Dice and Dice of the validation images, as an evaluation has them."""
    rows = evaluate(run, EvaluationOptions("val", device="cpu")).report.cases
    return np.array([(row.expected_dice, row.dice) for row in rows])


def test_expected_dice_is_corrected_everywhere(run, folder_dataset, tmp_path, monkeypatch):
    images = folder_dataset / "val/images"
    assert calibrate(run, device="cpu").calibration.expected_dice is None  # too few images
    raw, reached = expected_and_reached(run).T
    predict(run, images, tmp_path / "raw")

    monkeypatch.setattr("segconf.calibration.dice_scale.FEWEST_IMAGES", 2)
    found = calibrate(run, device="cpu").calibration
    scale = found.expected_dice
    expected = np.array([scale.of(value) for value in raw])
    assert scale.error_before == pytest.approx(np.abs(raw - reached).mean(), abs=1e-5)
    assert scale.error == pytest.approx(np.abs(expected - reached).mean(), abs=1e-5)
    # Notes are in the unit of what is shown: one of them is of the column itself.
    notes = {one.column: one for one in found.notes}
    assert notes["expected_dice"].limit == pytest.approx(expected.min(), abs=1e-5)

    low = scale.model_copy(update={"intercept": -6.0})
    write_calibration(run, found.model_copy(update={"expected_dice": low}))
    corrected, _ = expected_and_reached(run).T
    assert corrected == pytest.approx([low.of(value) for value in raw], abs=1e-5)
    assert corrected.max() < 0.7 < raw.min()
    predict(run, images, tmp_path / "corrected")
    before, after = (
        [row.expected_dice for row in PredictionFolder(tmp_path / name).rows()]
        for name in ("raw", "corrected")
    )
    assert after == pytest.approx([low.of(value) for value in before], abs=1e-4)
    assert set(after) != set(before)


def tensors(run):
    with safe_open(run / "best.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118


def test_evaluate_and_predict_use_the_temperature(run, folder_dataset):
    picture = folder_dataset / "test/images/case_200.png"
    options = EvaluationOptions("val", device="cpu")
    before = evaluate(run, options).report.metrics["all"]["strict"]
    plain = load_model(run, device="cpu").predict(picture)
    kept = tensors(run)
    found = calibrate(run, device="cpu")

    temperature = found.fit.temperature
    assert temperature > 1.5
    report = evaluate(run, options).report
    after = report.metrics["all"]["strict"]
    assert report.about["temperature"] == temperature == load_checkpoint(run).temperature
    for name in ("nll", "ece"):
        assert found.before[name] == before[name]
        assert found.after[name] == pytest.approx(after[name], rel=1e-5)
    assert after["nll"] == pytest.approx(found.fit.nll, rel=1e-5)
    assert after["nll"] < before["nll"]
    # With two classes a temperature keeps the order of the pixels and their classes.
    assert after["aurc"] == pytest.approx(before["aurc"], rel=1e-4)
    assert after["miou"] == before["miou"]

    softer = load_model(run, device="cpu").predict(picture)
    np.testing.assert_array_equal(softer.mask, plain.mask)
    some = (plain.confidence > 0.7) & (plain.confidence < 0.99)
    assert some.any()
    odds = [np.log(p.confidence[some] / (1 - p.confidence[some])) for p in (plain, softer)]
    np.testing.assert_allclose(odds[0] / odds[1], temperature, rtol=0.01)
    assert tensors(run) == kept


@pytest.mark.parametrize("scaling", ["ets", "vector"])
def test_other_calibrators_are_used_everywhere(run, folder_dataset, tmp_path, scaling):
    picture = folder_dataset / "test/images/case_200.png"
    single = calibrate(run, device="cpu")
    found = calibrate(run, scaling=scaling, device="cpu")
    stored = json.loads((run / "calibration.json").read_text())

    assert stored["temperature"] is None
    assert stored[scaling]["images"] == 4
    assert found.fit.nll <= found.fit.nll_temperature == single.fit.nll
    report = evaluate(run, EvaluationOptions("val", device="cpu")).report
    assert report.about["scaling"] == scaling
    for name in ("nll", "ece", "aurc"):
        after = report.metrics["all"]["strict"][name]
        assert after == pytest.approx(found.after[name], rel=1e-5)
    assert report.metrics["all"]["strict"]["nll"] == pytest.approx(found.fit.nll, rel=1e-5)

    model = load_model(run, device="cpu")
    predicted = model.predict(picture)
    predict(model, [picture], tmp_path / "maps")
    record = json.loads((tmp_path / "maps/run.json").read_text())["confidence"]
    assert (record["scaling"], record["temperature"]) == (scaling, found.fit.calibrator.temperature)
    # The weights file alone knows its calibrator too.
    (run / "calibration.json").unlink()
    alone = load_model(run / "best.safetensors", device="cpu")
    assert alone.calibrator == found.fit.calibrator
    np.testing.assert_array_equal(alone.predict(picture).confidence, predicted.confidence)
    # A temperature takes its place again.
    calibrate(run, device="cpu")
    assert load_model(run / "best.safetensors", device="cpu").scaling == "temperature"


def test_a_damaged_calibrator_is_refused_with_a_way_out(run):
    tensors, metadata = read_tensors(run / "best.safetensors", way_out="")
    write_tensors(run / "best.safetensors", tensors, metadata | {"calibrator": "{}"})
    with pytest.raises(CheckpointError, match=r"calibrator cannot be read.* segconf calibrate"):
        load_model(run, device="cpu")
    calibrate(run, device="cpu")
    load_model(run, device="cpu")


@pytest.mark.parametrize(
    ("scaling", "said"),
    [("ets", "weights of calibrated, own and equal"), ("vector", "Scales of the classes")],
)
def test_the_command_says_what_other_calibrators_are(run, scaling, said):
    result = CliRunner().invoke(app, ["calibrate", str(run), "--with", scaling, "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert said in " ".join(result.stdout.split())
    assert "NLL" in result.stdout


def test_calibrating_twice_gives_the_same(run):
    first = calibrate(run, device="cpu")
    content = (run / "best.safetensors").read_bytes()
    stored = (run / "calibration.json").read_text()
    (run / "calibration.json").write_text('{"threshold": 0.8}')
    second = calibrate(run, device="cpu")
    assert second.fit == first.fit
    assert second.before == first.before
    assert (run / "best.safetensors").read_bytes() == content
    assert second.calibration == first.calibration
    assert (run / "calibration.json").read_text() == stored


def test_the_command_says_what_changed_and_replaces_a_stale_threshold(run):
    (run / "calibration.json").write_text('{"threshold": 0.8}')
    result = CliRunner().invoke(app, ["calibrate", str(run), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    temperature = load_checkpoint(run).temperature
    stored = json.loads((run / "calibration.json").read_text())
    assert f"Temperature {temperature:.4f} (95% interval " in result.stdout
    assert stored["temperature"]["value"] == temperature
    assert {stored[name]["images"] for name in ("temperature", "threshold", "referral")} == {4}
    assert "NLL x10 " in result.stdout
    assert "ECE x10^2 " in result.stdout
    assert stored["weights_sha256"] == weights_hash(run)
    assert stored["threshold"]["max_risk"] == 0.02
    assert f"Risk threshold {stored['threshold']['confidence']:.4f}: " in result.stdout
    assert "Referral: cases with " in result.stdout
    assert stored["referral"]["refer_fraction"] == 0.2
    assert "Shaded: pixels that are wrong more than 1 time in " in result.stdout
    assert "calibration.json" in result.stderr
    assert "warning" not in result.stderr
    assert stored["referral_guarantee"]["threshold"] is None  # 0.85^4 is no proof
    assert "with probability 0.9: not possible with 4 validation groups (4 images)" in (
        result.stdout.replace("\n", " ")
    )
    # 1 / (n + 1) is larger than the promise: four images are too few for 5% and for 10%.
    assert [one["threshold"] for one in stored["contours"]] == [None] * 4
    words = "Outer line, 0.05: not possible with 4 validation groups (4 images) at this level."
    assert words in result.stdout.replace("\n", " ")


def shown(tmp_path, capsys, **parts):
    calibration = Calibration(weights_sha256="", **parts)
    show_calibration(tmp_path, CalibrationResult(calibration, None, {}, {}, 2))
    output = capsys.readouterr()
    return f"{output.out} {output.err}".replace("\n", " ")


def test_the_budget_that_is_recommended_reaches_the_target(tmp_path, capsys):
    rule = StoredReferral(
        score="expected_dice",
        threshold=0.5,
        refer_fraction=0.1,
        reserved=0.05,
        fraction=0.0,
        kept_dice=0.8,
        kept_dice_interval=(0.7, 0.9),
        target_dice=0.85,
        target_fraction=1 / 7,
        images=7,
    )
    # 0.19 would leave 0.14 of 7 cases, which is none; 0.20 leaves one.
    assert "--refer-fraction 0.20 would reach it" in shown(tmp_path, capsys, referral=rule)
    whole = rule.model_copy(update={"target_fraction": 0.3})
    assert "--refer-fraction 0.35 would reach it" in shown(tmp_path, capsys, referral=whole)


def test_a_guarantee_refers_cases_in_which_nothing_was_found(tmp_path, capsys):
    rule = StoredReferralGuarantee(
        score="expected_dice",
        target_dice=0.8,
        delta=0.1,
        threshold=-1.0,
        fraction=0.25,
        kept_dice=0.9,
        p_value=0.001,
        groups=40,
        images=40,
    )
    words = "refer cases in which nothing was found (25.0% of 40 validation groups (40 images)"
    assert words in shown(tmp_path, capsys, referral_guarantee=rule)
    none = rule.model_copy(update={"fraction": 0.0})
    assert "no case has to be referred" in shown(tmp_path, capsys, referral_guarantee=none)


def test_a_temperature_at_the_bound_is_a_warning(run):
    trained = load_checkpoint(run)
    weights = trained.model.state_dict()
    weights["last.weight"] = torch.zeros_like(weights["last.weight"])
    weights["last.bias"] = torch.tensor([-1.0, 1.0])  # all foreground, which is mostly wrong
    save_checkpoint(run / "best.safetensors", weights, trained.config)
    result = CliRunner().invoke(app, ["calibrate", str(run), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert load_checkpoint(run).temperature == 20
    assert "warning: the temperature is at the end of the range" in result.stderr


def test_the_temperature_of_a_weights_file(run, tmp_path):
    store_calibrator(run / "best.safetensors", TemperatureScaling(temperature=1.25))
    assert load_checkpoint(run).temperature == 1.25
    metadata = safe_open(run / "best.safetensors", framework="pt").metadata()
    assert json.loads(metadata["config"])["training"]["method"] == "softmax"
    with pytest.raises(CheckpointError, match="no such file"):
        store_calibrator(tmp_path / "nowhere", TemperatureScaling(temperature=2.0))


def test_targets_that_are_no_fractions_are_refused(run):
    for name in ("max_risk", "target_dice"):
        with pytest.raises(ConfigError, match=rf"{name} = 1\.2: expected a number between 0 and 1"):
            calibrate(run, device="cpu", **{name: 1.2})
    assert not (run / "calibration.json").exists()


def test_without_scaling_the_logits_stay_as_they_are(run):
    store_calibrator(run, TemperatureScaling(temperature=3.0))
    found = calibrate(run, scaling="none", device="cpu")
    assert found.fit is None
    assert found.calibration.temperature is None
    assert load_model(run, device="cpu").temperature == 1.0
    assert found.before == found.after


def test_contours_are_stored_and_stand_in_the_record_of_a_prediction(run, folder_dataset, tmp_path):
    asked = ["calibrate", str(run), "--device", "cpu", "--guarantee", "0.6", "--guarantee", "0.1"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    stored = json.loads((run / "calibration.json").read_text())["contours"]
    found = {(one["kind"], one["alpha"]): one for one in stored}
    assert list(found) == [("outer", 0.1), ("outer", 0.6), ("inner", 0.1), ("inner", 0.6)]
    assert found["outer", 0.1]["threshold"] is None
    outer, inner = found["outer", 0.6], found["inner", 0.6]
    assert 0 < outer["threshold"] <= 0.5 <= inner["threshold"] < 1
    assert {one["groups"] for one in stored} == {one["images"] for one in stored} == {4}
    assert "on average it misses at most 0.6 of a lesion" in result.stdout.replace("\n", " ")
    assert "nothing is promised for an image" in result.stdout.replace("\n", " ")

    predict(run, folder_dataset / "test/images", tmp_path / "maps")
    record = json.loads((tmp_path / "maps/run.json").read_text())
    assert record["contours"] == [
        {"kind": kind, "class": 1, "alpha": 0.6, "threshold": one["threshold"]}
        for kind, one in (("outer", outer), ("inner", inner))
    ]
    assert PredictionFolder(tmp_path / "maps").record().contours == (
        Contour("outer", 1, 0.6, outer["threshold"]),
        Contour("inner", 1, 0.6, inner["threshold"]),
    )


def test_a_guarantee_that_is_no_fraction_is_refused(run):
    with pytest.raises(ConfigError, match=r"guarantee = 1\.0: expected a number between 0 and 1"):
        calibrate(run, device="cpu", guarantees=(0.05, 1.0))
