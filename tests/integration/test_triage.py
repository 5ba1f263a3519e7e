"""`segconf triage`: a network whose mistakes and doubts can be told from the picture."""

import csv
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from segconf.calibration.calibrate import calibrate
from segconf.calibration.referral import SCORES, fit_referral
from segconf.calibration.stored import Calibration, StoredReferral, write_calibration
from segconf.calibration.triage import refer, triage
from segconf.checkpoints.weights import load_checkpoint
from segconf.errors import CheckpointError, ConfigError, DataError
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.results.rows import OUT_OF_DISTRIBUTION, CaseRow
from segconf.results.summary import foreground_confidence, patch_confidence
from segconf_cli.main import app
from tests.references import triage as reference
from tests.untrained_runs import untrained_run

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def run(tmp_path):
    """Run folder of an untrained UNet on discs of the size of its grid."""
    folder, _ = untrained_run(tmp_path, training=4, validation=9, test=7)
    return folder.path


def fit_rule(run, target_dice):
    """The network's own confidence, and a referral of a third of the cases."""
    options = {"scaling": "none", "target_dice": target_dice, "refer_fraction": 0.35}
    return calibrate(run, **options, device="cpu").calibration


def probabilities_and_mask(run, name):
    root = run.parent / "discs/test"
    pixels = (np.array(Image.open(root / "images" / f"{name}.png")) / 255 - MEAN) / STD
    batch = torch.from_numpy(pixels.transpose(2, 0, 1)[None]).float()
    with torch.no_grad():
        probabilities = load_checkpoint(run).model(batch).softmax(dim=1)[0].numpy()
    return probabilities, np.array(Image.open(root / "masks" / f"{name}.png")) > 0


def test_report_agrees_with_scores_computed_by_hand(run):
    fit_rule(run, 0.4)
    found = triage(run, device="cpu")
    folder = run / "evaluation/test"
    rows = list(csv.DictReader((folder / "triage.csv").read_text().splitlines()))
    assert len(rows) == 7
    for row in rows:
        probabilities, mask = probabilities_and_mask(run, row["case"].removeprefix("test/"))
        lesion = probabilities[1] > probabilities[0]
        dice = 2 * (lesion & mask).sum() / (lesion.sum() + mask.sum())
        confidence = probabilities.max(axis=0)
        patches = confidence.reshape(8, 4, 8, 4).mean(axis=(1, 3))
        assert float(row["dice"]) == pytest.approx(dice, abs=1e-3)
        assert float(row["mean_confidence"]) == pytest.approx(confidence.mean(), abs=1e-4)
        assert float(row["patch_confidence"]) == pytest.approx(patches.min(), abs=1e-4)
        assert float(row["foreground_confidence"]) == pytest.approx(
            confidence[lesion].mean(), abs=1e-4
        )
    dices = [float(row["dice"]) for row in rows]
    content = json.loads((folder / "triage.json").read_text())
    for name in SCORES:
        values = [float(row[name] or -1) for row in rows]
        curve = reference.risk_curve(values, [1 - dice for dice in dices])
        entry = content["scores"][name]
        assert entry["aurc"] == pytest.approx(np.mean(curve), abs=1e-5)
        assert entry["referred"] == reference.cases_to_refer(values, dices, 0.4)
        assert entry["interval"][0] <= entry["aurc"] <= entry["interval"][1]
    assert content["scores"]["best possible"]["aurc"] <= min(
        content["scores"][name]["aurc"] for name in SCORES
    )
    assert found.random in {0.0, 1.0}
    assert (folder / "triage.png").stat().st_size > 5000


def test_the_rule_is_chosen_on_validation_and_orders_the_review_page(run, tmp_path):
    rule = fit_rule(run, 0.4).referral
    on_test = triage(run, device="cpu")
    on_validation = triage(run, split="val", device="cpu")
    assert on_test.rule == on_validation.rule == rule == load_model(run).calibration.referral
    best = min(SCORES, key=lambda name: on_validation.scores[name].aurc)
    assert on_test.rule.score == best
    # The budget of 0.35 keeps 0.05 for out-of-distribution images: 2 of 9 cases are referred.
    assert on_test.rule.fraction == on_validation.referred == pytest.approx(2 / 9)
    assert on_test.rule.kept_dice == pytest.approx(on_validation.kept_dice)
    assert on_test.rule.target_fraction == on_validation.scores[best].referral.fraction
    assert not (run / "triage.json").exists()
    stored = json.loads((run / "calibration.json").read_text())
    stored["referral"]["score"] = "patch_confidence"
    (run / "calibration.json").write_text(json.dumps(stored))
    sources = find_images([tmp_path / "discs/test/images"])
    predict(load_model(run, device="cpu"), sources, tmp_path / "maps")
    assert json.loads((tmp_path / "maps/run.json").read_text())["order"] == "patch_confidence"
    page = (tmp_path / "maps/review.html").read_text(encoding="utf-8")
    assert '"order":"patch_confidence"' in page.replace(": ", ":")


def rows_of(**columns):
    count = len(columns["mean_confidence"])
    return [CaseRow(str(i), "", **{n: columns[n][i] for n in columns}) for i in range(count)]


def test_rule_worked_by_hand():
    flat = [0.5] * 4
    dice = np.array([0.9, 0.2, 0.8, 0.0])
    rows = rows_of(
        expected_dice=flat,
        mean_confidence=flat,
        border_confidence=[0.9, 0.3, 0.8, math.nan],  # no lesion found: to be seen first
        patch_confidence=[0.1, 0.3, 0.5, 0.7],
        foreground_confidence=flat,
    )
    # By border: 0.9, 0.8, 0.2, 0. All 0.475, without the last 0.633, without two 0.85.
    found = fit_referral(rows, dice, 0.85, budget=0.5, groups="abcd")
    assert (found.score, found.threshold, found.fraction) == ("border_confidence", 0.8, 0.5)
    assert found.kept_dice == pytest.approx(0.85)
    assert found.interval == pytest.approx((0.8, 0.9))
    fewer = fit_referral(rows, dice, 0.85, budget=0.25, groups="abcd")
    assert (fewer.threshold, fewer.fraction, fewer.target_fraction) == (0.3, 0.25, 0.5)
    assert fewer.kept_dice == pytest.approx(1.9 / 3)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"target_dice": 1.2}, r"target_dice = 1\.2: expected a number between 0 and 1"),
        ({"max_risk": 0.0}, r"max_risk = 0\.0: expected a number between 0 and 1"),
        ({"refer_fraction": 1.0}, r"refer_fraction = 1\.0: expected a number between 0 and 1"),
        ({"refer_fraction": 0.04}, r"refer_fraction = 0\.04: .*out of distribution"),
    ],
)
def test_targets_that_cannot_be_are_refused(run, targets, message):
    with pytest.raises(ConfigError, match=message):
        calibrate(run, **targets)


def test_patches_and_foreground_worked_by_hand():
    levels = np.full((1, 16, 24), 60000, np.uint16)
    levels[0, 2:4, 3:6] = 30000  # exactly one of 8 x 8 patches of 2 x 3 pixels
    assert patch_confidence(levels) == pytest.approx(30000 / 65535)
    shifted = np.roll(levels, 1, axis=1)  # half of one patch, half of the one below
    assert patch_confidence(shifted) == pytest.approx(45000 / 65535)
    assert patch_confidence(levels[:, 2:4, 3:6]) == pytest.approx(30000 / 65535)
    mask = np.zeros((1, 16, 24), np.uint8)
    assert math.isnan(foreground_confidence(mask, levels))
    mask[0, 2:6, 3:6] = 1
    assert foreground_confidence(mask, levels) == pytest.approx(45000 / 65535)


def write_rule(run, model, score, threshold):
    rule = StoredReferral(
        score=score,
        threshold=threshold,
        refer_fraction=0.35,
        reserved=0.05,
        target_dice=0.8,
        target_fraction=0.3,
        fraction=0.3,
        kept_dice=0.8,
        kept_dice_interval=(0.7, 0.9),
        images=9,
    )
    write_calibration(run, Calibration(weights_sha256=model.weights_sha256, referral=rule))


def test_referrals_of_a_prediction_folder(run, tmp_path):
    images = tmp_path / "discs/test/images"
    (images / "broken.png").write_bytes(b"nothing")
    model, maps = load_model(run, device="cpu"), tmp_path / "maps"
    predict(model, find_images([images]), maps)
    other = maps / "review/rows/case_203.json"
    row = json.loads(other.read_text())
    other.write_text(json.dumps(row | {"ood_score": 9.0}))
    with (maps / "cases.csv").open(encoding="utf-8", newline="") as file:
        means = {row["case"]: row["mean_confidence"] for row in csv.DictReader(file)}
    others = sorted((float(means[c]), c) for c in means if c not in {"broken", "case_203"})
    with pytest.raises(CheckpointError, match=f"no referral rule yet.*segconf calibrate {run}"):
        refer(maps, model)
    write_rule(run, model, "mean_confidence", (others[1][0] + others[2][0]) / 2)
    model = load_model(run, device="cpu")
    model.detector = SimpleNamespace(threshold=8.0)
    found = refer(maps, model)
    assert [case.case for case in found] == ["broken", "case_203", *(name for _, name in others)]
    low = "low confidence over the whole image"
    reasons = ["not predicted: the file cannot be read", OUT_OF_DISTRIBUTION, low, low, *[""] * 4]
    assert [case.reason for case in found] == reasons
    with (maps / "referrals.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["case"] for line in lines if line["refer"] == "yes"] == [
        case.case for case in found[:4]
    ]
    values = json.loads((maps / "run.json").read_text())
    values["model"]["sha256"] = "another"
    (maps / "run.json").write_text(json.dumps(values))
    with pytest.raises(DataError, match="predicted by another model"):
        refer(maps, model)


def test_command_prints_the_table(run):
    missing = CliRunner().invoke(app, ["triage", str(run)])
    assert isinstance(missing.exception, CheckpointError)
    assert f"segconf calibrate {run}" in str(missing.exception)
    fitted = CliRunner().invoke(app, ["calibrate", str(run), "--target-dice", "0.99"])
    said = " ".join(fitted.output.split())
    assert "11.1% of the validation images; the others have a mean Dice" in said  # one of nine
    assert "below the target of 0.99. No budget reaches it." in said
    result = CliRunner().invoke(app, ["triage", str(run)])
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "7 test images" in said
    assert "a case is referred: 11.1% of the validation images, " in said
    report = run / "evaluation/test/triage.json"
    report.unlink()
    refused = CliRunner().invoke(app, ["triage", str(run), str(run)])
    assert isinstance(refused.exception, DataError)
    assert "not a prediction folder" in str(refused.exception)
    assert not report.exists()  # refused before anything was measured
    bad = CliRunner().invoke(app, ["triage", str(run), "--split", "train"])
    assert bad.exit_code == 2
    said = " ".join(bad.stderr.replace("│", " ").split())
    assert "'train' is not one of 'test', 'val'" in said
