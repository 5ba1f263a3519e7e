"""After the last epoch: a run ends with a detector and a calibration that fit its weights."""

import csv
import json
import shutil

import pytest

from segconf.calibration.fitted import (
    DEFAULT_MAX_RISK,
    DEFAULT_REFER_FRACTION,
    DEFAULT_TARGET_DICE,
)
from segconf.checkpoints.weights import weights_hash
from segconf.inference.model import load_model
from segconf.ood.detector import load_detector
from segconf.runs.run_folder import RunFolder
from segconf.training.train import train
from tests.training_runs import Interrupter

SMALL = [
    *("--set", "data.size=[32, 32]", "--device", "cpu", "--out", "run"),
    *("--set", "model.encoder=tu-test_resnet", "--set", "model.encoder_weights=none"),
    *("--set", "training.batch_labeled=4", "--set", "training.learning_rate=0.0003"),
]
CALIBRATION, DETECTOR = "calibration.json", "ood.safetensors"


@pytest.fixture
def trained(segconf, folder_dataset):
    """Train into `run` by the command, and look at what it left."""

    def start(*options):
        code, _, err = segconf("train", folder_dataset, *SMALL, *options)
        assert code == 0, err

    return start


@pytest.fixture
def predicted(segconf, folder_dataset, tmp_path):
    """Predict the test images by the command: exit code, messages and the folder."""

    def start(name):
        folder = tmp_path / name
        images = folder_dataset / "test/images"
        arguments = ("predict", images, "--out", folder, "--checkpoint", "run", "--device", "cpu")
        code, _, err = segconf(*arguments)
        return code, " ".join(err.split()), folder

    return start


def is_ordered(interval):
    low, high = interval
    return low <= high


def test_train_then_predict_with_nothing_in_between(trained, predicted, tmp_path):
    trained("--method", "softmax", "--epochs", 2)
    run = tmp_path / "run"
    stored = json.loads((run / CALIBRATION).read_text())
    assert stored["weights_sha256"] == weights_hash(run)
    temperature, threshold, referral = (
        stored[name] for name in ("temperature", "threshold", "referral")
    )
    assert {part["images"] for part in (temperature, threshold, referral)} == {4}
    assert temperature["nll"] <= temperature["nll_before"]
    assert is_ordered(temperature["interval"])
    assert is_ordered(threshold["coverage_interval"])
    assert threshold["risk_interval"] is None or is_ordered(threshold["risk_interval"])
    assert referral["kept_dice_interval"] is None or is_ordered(referral["kept_dice_interval"])
    targets = (threshold["max_risk"], referral["target_dice"], referral["refer_fraction"])
    assert targets == (DEFAULT_MAX_RISK, DEFAULT_TARGET_DICE, DEFAULT_REFER_FRACTION)

    code, _, maps = predicted("maps")
    assert code == 0
    record = json.loads((maps / "run.json").read_text())
    assert record["model"]["sha256"] == stored["weights_sha256"]
    assert record["confidence"]["threshold"] == threshold["confidence"]
    assert record["confidence"]["temperature"] == temperature["value"]
    assert record["confidence"]["max_risk"] == threshold["max_risk"]
    assert record["order"] == referral["score"]
    detector = load_detector(run, stored["weights_sha256"])
    assert record["out_of_distribution"]["threshold"] == detector.threshold
    with (maps / "cases.csv").open(encoding="utf-8", newline="") as file:
        assert all(float(row["ood_score"]) > 0 for row in csv.DictReader(file))


def test_a_run_that_is_not_calibrated(trained, predicted, tmp_path):
    trained("--method", "softmax", "--epochs", 1, "--no-calibrate")
    assert not (tmp_path / "run" / CALIBRATION).exists()
    assert (tmp_path / "run" / DETECTOR).is_file()
    code, _, maps = predicted("maps")
    assert code == 0
    record = json.loads((maps / "run.json").read_text())["confidence"]
    assert (record["temperature"], record["threshold"], record["max_risk"]) == (1.0, None, None)
    assert not record["scale"]["measured"]


@pytest.fixture
def extended(segconf, trained, tmp_path):
    """A calibrated run of one epoch, then continued to four, which have better weights."""

    def start(*options):
        trained("--method", "softmax", "--epochs", 1)
        run = tmp_path / "run"
        before = weights_hash(run)
        shutil.copy(run / DETECTOR, tmp_path / "older")
        code, _, err = segconf("train", "--resume", "run", "--epochs", 4, *options)
        assert code == 0, err
        assert weights_hash(run) != before
        return run

    return start


def test_numbers_of_older_weights_are_refused(extended, predicted, segconf, tmp_path):
    run = extended("--no-calibrate")
    code, said, _ = predicted("maps")
    assert code == 2
    assert f"run/{CALIBRATION}: belongs to other weights" in said
    assert "segconf calibrate run" in said
    code, _, err = segconf("evaluate", "run", "--device", "cpu")
    assert code == 2
    assert "segconf calibrate run" in " ".join(err.split())
    # The detector does not wait for a calibration: it is that of the new weights.
    assert load_detector(run, weights_hash(run)) is not None

    shutil.copy(tmp_path / "older", run / DETECTOR)  # as where the training was interrupted
    code, _, err = segconf("calibrate", "run", "--device", "cpu")
    assert code == 0, err
    refusals = (predicted("maps")[:2], segconf("evaluate", "run", "--device", "cpu")[::2])
    for code, said in refusals:
        assert code == 2
        assert f"run/{DETECTOR}: belongs to other weights" in " ".join(said.split())
        assert "segconf train --resume run" in " ".join(said.split())
    code, _, err = segconf("train", "--resume", "run")
    assert code == 0, err
    assert predicted("maps")[0] == 0
    assert segconf("evaluate", "run", "--device", "cpu")[0] == 0


def test_a_continued_run_is_calibrated_again(extended, predicted, segconf):
    run = extended()
    stored = json.loads((run / CALIBRATION).read_text())
    assert stored["weights_sha256"] == weights_hash(run)
    assert load_detector(run, weights_hash(run)) is not None
    assert predicted("maps")[0] == 0
    assert segconf("evaluate", "run", "--device", "cpu")[0] == 0


def test_an_interrupted_continuation_leaves_nothing_that_is_believed(
    trained, predicted, folder_dataset, segconf, tmp_path
):
    trained("--method", "softmax", "--epochs", 1)
    run = RunFolder(tmp_path / "run")
    before = weights_hash(run.path)
    config = run.config()
    longer = config.model_copy(
        update={"training": config.training.model_copy(update={"epochs": 4})}
    )
    with pytest.raises(KeyboardInterrupt):
        train(
            longer,
            dataset=str(folder_dataset),
            folder=run.path,
            resume=True,
            listener=Interrupter(3, 1),
        )
    assert weights_hash(run.path) != before
    code, said, _ = predicted("maps")
    assert code == 2
    assert "segconf calibrate run" in said
    assert segconf("train", "--resume", "run")[0] == 0
    assert predicted("maps")[0] == 0


def test_an_ensemble_has_a_detector_and_a_calibration_of_its_own(trained, predicted, tmp_path):
    trained("--method", "ensemble", "--set", "training.members=2", "--epochs", 1)
    run = tmp_path / "run"
    members = [run / "members" / number for number in "01"]
    assert not any(
        (member / name).exists() for member in members for name in (CALIBRATION, DETECTOR)
    )
    whole = weights_hash(run)
    assert whole not in {weights_hash(member) for member in members}
    stored = json.loads((run / CALIBRATION).read_text())
    assert stored["weights_sha256"] == whole
    assert all(stored[name]["images"] == 4 for name in ("temperature", "threshold", "referral"))
    model = load_model(run, device="cpu")
    assert model.predictor.count == 2
    assert model.calibration.weights_sha256 == whole
    assert model.detector.validation_images == 4
    code, _, maps = predicted("maps")
    assert code == 0
    record = json.loads((maps / "run.json").read_text())
    assert record["model"]["passes"] == 2
    assert record["confidence"]["threshold"] == stored["threshold"]["confidence"]
    with (maps / "cases.csv").open(encoding="utf-8", newline="") as file:
        assert all(float(row["ood_score"]) > 0 for row in csv.DictReader(file))


def test_a_calibration_that_someone_chose_is_kept(trained, segconf, tmp_path):
    trained("--method", "softmax", "--epochs", 1)
    chosen = ("--with", "none", "--max-risk", 0.01)
    assert segconf("calibrate", "run", "--device", "cpu", *chosen)[0] == 0
    before = (tmp_path / "run" / CALIBRATION).read_bytes()
    (tmp_path / "run" / DETECTOR).unlink()
    assert segconf("train", "--resume", "run")[0] == 0  # fits what is missing
    assert (tmp_path / "run" / DETECTOR).is_file()
    assert (tmp_path / "run" / CALIBRATION).read_bytes() == before


def test_a_run_is_calibrated_where_its_data_set_is_now(trained, segconf, folder_dataset, tmp_path):
    trained("--method", "softmax", "--epochs", 1, "--no-calibrate")
    moved = folder_dataset.rename(tmp_path / "elsewhere")
    code, _, err = segconf("train", "--resume", "run", "--data", moved)
    assert code == 0, err
    assert (tmp_path / "run" / CALIBRATION).is_file()
