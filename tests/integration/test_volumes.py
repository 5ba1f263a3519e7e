"""Volumes are judged, calibrated and referred as a whole, and resampled by their groups."""

import csv
import json

import nibabel
import numpy as np
import pytest

from segconf.calibration.calibrate import calibrate
from segconf.calibration.triage import triage
from segconf.errors import DataError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.evaluation.score import score
from segconf.inference.model import load_model
from segconf.inference.pipeline import PredictOptions
from segconf.inference.predict import predict
from tests.training_runs import use_network
from tests.volume_runs import ThreeGreys, volume_run


@pytest.fixture
def run(tmp_path, monkeypatch):
    use_network(monkeypatch, ThreeGreys)
    return volume_run(tmp_path).path


def slow_dice(found, truth):
    """Counted voxel by voxel."""
    both = total = 0
    for one, other in zip(found.ravel().tolist(), truth.ravel().tolist(), strict=True):
        both += one and other
        total += one + other
    return 2 * both / total


def test_evaluate_and_score_agree_on_whole_volumes(run, tmp_path):
    images, masks = tmp_path / "volumes/test/images", tmp_path / "volumes/test/masks"
    maps = tmp_path / "maps"
    predict(load_model(run), images, maps, options=PredictOptions(save_probabilities=True))
    scored = score(maps / "probabilities", masks, classes=3).report
    evaluated = evaluate(run, EvaluationOptions(native=True, device="cpu")).report
    assert [row.case for row in evaluated.cases] == ["test/v40", "test/v41", "test/v42"]
    assert [row.case for row in scored.cases] == ["v40", "v41", "v42"]
    for row, other in zip(evaluated.cases, scored.cases, strict=True):
        found, truth = (
            np.asarray(nibabel.load(folder / f"{other.case}.nii.gz").dataobj)
            for folder in (maps / "masks", masks)
        )
        by_class = [slow_dice(found == k, truth == k) for k in (1, 2)]
        assert row.dice == other.dice == pytest.approx(slow_dice(found > 0, truth > 0))
        assert row.class_dice == other.class_dice == pytest.approx(tuple(by_class))
        assert (row.iou, row.hausdorff95) == (other.iou, other.hausdorff95)
        assert (row.surface_distance, row.unit) == (other.surface_distance, other.unit)
        assert row.unit == "mm"
        assert row.expected_dice == pytest.approx(other.expected_dice, rel=1e-6)
    for stratum in ("all", "boundary", "foreground"):
        one, other = (report.metrics[stratum]["strict"] for report in (evaluated, scored))
        assert one == pytest.approx(other, rel=1e-4), stratum
    assert evaluated.metrics["all"]["strict"]["miou"] == scored.metrics["all"]["strict"]["miou"]
    assert evaluated.per_image["dice"] == scored.per_image["dice"]
    assert evaluated.per_image["dice_2"] == np.mean([row.class_dice[1] for row in scored.cases])
    assert evaluated.about["pixels"] == 3 * 5 * 32 * 32


def test_the_table_has_a_row_for_every_volume_and_names_its_group(run):
    folder = evaluate(run, EvaluationOptions("val", device="cpu")).folder
    rows = list(csv.DictReader((folder / "cases.csv").read_text().splitlines()))
    assert [row["case"] for row in rows] == [f"val/v{number}" for number in range(20, 24)]
    assert [row["group"] for row in rows] == [row["case"] for row in rows]
    assert {"dice", "dice_1", "dice_2"} <= set(rows[0])
    content = json.loads((folder / "metrics.json").read_text())
    assert (content["images"], content["groups"], content["resampled"]) == (4, 4, "images")
    low, high = content["per_image_intervals"]["dice"]
    assert low <= content["per_image"]["dice"] <= high


def test_groups_of_a_table_are_what_is_resampled(run, tmp_path):
    lines = ["image,group", *(f"v{number}.nii.gz,p{number // 2}" for number in range(20, 24))]
    (tmp_path / "volumes/val/groups.csv").write_text("\n".join(lines))
    report = evaluate(run, EvaluationOptions("val", device="cpu")).report
    assert [row.group for row in report.cases] == ["p10", "p10", "p11", "p11"]
    content = json.loads((run / "evaluation/val/metrics.json").read_text())
    assert (content["images"], content["groups"], content["resampled"]) == (4, 2, "groups")
    assert content["interval"].endswith("resamples of groups")
    # Two groups: a resample is one of them twice, or both.
    dice = [row.dice for row in report.cases]
    expected = sorted([np.mean(dice[:2]), np.mean(dice[2:])])
    assert report.per_image_intervals["dice"] == pytest.approx(expected)
    found = calibrate(run, device="cpu").calibration
    for part in (found.temperature, found.threshold, found.referral):
        assert (part.images, part.groups) == (4, 2)


@pytest.mark.parametrize("scaling", ["temperature", "none"])
def test_nothing_is_stored_where_nothing_is_annotated(tmp_path, monkeypatch, scaling):
    use_network(monkeypatch, ThreeGreys)
    run = volume_run(tmp_path, data__ignore_255=True).path
    for file in (tmp_path / "volumes/val/masks").iterdir():
        shape = nibabel.load(file).shape
        nibabel.save(nibabel.Nifti1Image(np.full(shape, 255, np.uint8), np.eye(4)), file)
    with pytest.raises(DataError, match="no pixel of the validation masks is annotated"):
        calibrate(run, scaling=scaling, device="cpu")
    assert not (run / "calibration.json").exists()


def test_a_volume_without_an_annotated_voxel_proves_nothing(tmp_path, monkeypatch):
    use_network(monkeypatch, ThreeGreys)
    run = volume_run(tmp_path, data__ignore_255=True).path
    folder = tmp_path / "volumes/val"
    mask = folder / "masks/v22.nii.gz"
    ignored = np.full(nibabel.load(mask).shape, 255, np.uint8)
    nibabel.save(nibabel.Nifti1Image(ignored, np.eye(4)), mask)
    options = {"scaling": "none", "target_dice": 0.5, "guarantees": (0.5,), "device": "cpu"}
    found = calibrate(run, **options).calibration
    assert triage(run, split="val", device="cpu").cases == 3
    for part in ("masks", "images"):
        (folder / part / "v22.nii.gz").unlink()
    without = calibrate(run, **options).calibration
    for part in ("threshold", "error_rates", "referral", "notes", "referral_guarantee"):
        assert getattr(found, part) == getattr(without, part), part
    assert (found.contours, found.contour_curves) == (without.contours, without.contour_curves)


def test_referral_is_fitted_on_what_triage_and_predict_refer(run, tmp_path):
    """A volume is one case in all three; slices without a lesion are no cases of their own."""
    rule = calibrate(run, target_dice=0.5, device="cpu").calibration.referral
    assert rule.images == 4
    on_validation = triage(run, split="val", device="cpu")
    assert on_validation.cases == 4
    evaluated = evaluate(run, EvaluationOptions("val", device="cpu")).report
    rows = list(csv.DictReader((on_validation.folder / "triage.csv").read_text().splitlines()))
    for row, judged in zip(rows, evaluated.cases, strict=True):
        assert (row["case"], row["group"]) == (judged.case, judged.group)
        assert float(row["dice"]) == pytest.approx(judged.dice, abs=1e-6)
    maps = tmp_path / "maps"
    report = predict(load_model(run), tmp_path / "volumes/val/images", maps)
    # The volumes have the size of the grid: predict sees what the calibration saw.
    for row, predicted in zip(rows, report.rows, strict=True):
        assert float(row[rule.score]) == pytest.approx(getattr(predicted, rule.score), abs=1e-4)
