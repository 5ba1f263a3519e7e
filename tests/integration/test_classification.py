"""Labels from the command line: train, evaluate, calibrate, compare, predict; what is refused."""

import csv
import json
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from segconf.errors import ConfigError
from segconf.inference.label_job import LabelJob, check_label_options
from segconf.inference.model import load_model
from segconf.inference.predict import PredictOptions, predict
from segconf.inference.sources import Shard
from segconf.runs.run_folder import RunFolder
from tests.conftest import COLOURS, coloured, write_classes
from tests.references import metrics as reference

TRAIN = [
    *("--device", "cpu", "--epochs", "4", "--labeled", "9"),
    *("--set", "data.task=classification", "--set", "data.size=[8, 8]"),
    *("--set", "model.encoder=preact_resnet8", "--set", "model.encoder_weights=none"),
    *("--set", "training.batch_labeled=6", "--set", "training.batch_unlabeled=6"),
    *("--set", "training.learning_rate=0.01"),
]


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def journey(tmp_path_factory):
    """A data set and two runs on it, evaluated on the test images."""
    from segconf.calibration.calibrate import calibrate
    from segconf.config.loading import load_config
    from segconf.evaluation.evaluate import EvaluationOptions, evaluate
    from segconf.training.train import train

    root = tmp_path_factory.mktemp("journey")
    data = write_classes(root / "colours", {"train": 6, "val": 5, "test": 5})
    # Labels that contradict the pictures, so that there are errors to rank and to calibrate.
    for part in ("val", "test"):
        for name, shown in (("blue", "red"), ("green", "blue")):
            Image.fromarray(coloured([9, len(part)], shown)).save(data / part / name / "004.png")
    overrides = [one for one in TRAIN if "=" in one]
    for method in ("softmax", "consistency"):
        flags = {"training.method": method, "training.epochs": 4, "data.labeled": 9}
        config = load_config(overrides=overrides, flags=flags | {"training.device": "cpu"})
        train(config, dataset=str(data), folder=root / method)
        evaluate(root / method, EvaluationOptions(device="cpu"))
    calibrate(root / "consistency", device="cpu", refer_fraction=0.3)
    evaluate(root / "consistency", EvaluationOptions(device="cpu"))
    return root


def test_the_run_remembers_task_classes_and_grid(journey):
    config = RunFolder(journey / "consistency").config()
    assert config.data.task == "classification"
    assert config.data.class_names == COLOURS
    assert (config.model.classes, config.output_size) == (3, (1, 1))
    assert (config.augmentation.padding, config.augmentation.vertical_flip) == (4, 0)
    history = np.load(sorted((journey / "consistency/history").glob("last_prediction*"))[-1])
    assert (history.shape, history.dtype) == ((18, 1, 1), np.uint8)
    rows = table(journey / "consistency/epochs.csv")
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows)
    best = max(range(4), key=lambda epoch: float(rows[epoch]["accuracy"]))
    assert float(rows[best]["accuracy"]) == max(float(row["accuracy"]) for row in rows)


def test_metrics_follow_from_the_predictions(journey):
    """All metrics by the slow reference, from the logits of every picture on its own."""
    folder = journey / "consistency"
    model = load_model(folder, device="cpu", batch_size=1)
    logits, truth = [], []
    for number, name in enumerate(COLOURS):
        for path in sorted((journey / "colours/test" / name).glob("*.png")):
            pixels = np.array(Image.open(path))[None]
            logits.append(model.grid_logits(pixels)[0, :, 0, 0])
            truth.append(number)
    expected = reference.evaluate([one.tolist() for one in logits], truth)
    content = json.loads((folder / "evaluation/test/metrics.json").read_text())
    for name, value in expected.items():
        assert content["metrics"]["all"]["strict"][name] == pytest.approx(value, abs=1e-5), name
    assert np.sum(content["confusion"]) == 15
    assert [one["images"] for one in content["classes"]] == [5, 5, 5]
    for number, one in enumerate(content["classes"]):
        row = content["confusion"][number]
        assert one["recall"] == row[number] / 5
        assert one["predicted"] == sum(line[number] for line in content["confusion"])


def test_files_of_an_evaluation(journey):
    folder = journey / "consistency/evaluation/test"
    names = {path.name for path in folder.iterdir()}
    pictures = {"risk_coverage.png", "reliability.png", "confusion.png"}
    assert names == {"metrics.json", "cases.csv", "classes.csv", "images.npz", *pictures}
    cases = table(folder / "cases.csv")
    content = json.loads((folder / "metrics.json").read_text())
    right = [row["label"] == row["prediction"] for row in cases]
    assert [row["correct"] for row in cases] == [str(int(one)) for one in right]
    assert content["metrics"]["all"]["strict"]["accuracy"] == pytest.approx(np.mean(right))
    assert [row["class"] for row in table(folder / "classes.csv")] == list(COLOURS)


def test_the_calibration_refers_within_its_budget(journey):
    stored = json.loads((journey / "consistency/calibration.json").read_text())
    rule = stored["label_referral"]
    assert rule["fraction"] <= rule["refer_fraction"] == 0.3
    assert (rule["images"], stored["temperature"]["images"]) == (15, 15)
    assert stored["referral"] is None
    assert stored["contours"] == []
    assert stored["temperature"]["nll"] <= stored["temperature"]["nll_before"]


def test_labels_are_compared(journey, segconf):
    runs = [str(journey / name) for name in ("softmax", "consistency")]
    result = segconf("compare", *runs, "--baseline", "softmax")
    assert result[0] == 0, result[2]
    assert "accuracy" in result[1]
    assert "mIoU" not in result[1]


def test_predictions(journey, segconf, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    for number, name in enumerate(COLOURS * 2):
        Image.fromarray(coloured([7, number], name, size=12)).save(images / f"{number}.png")
    (images / "broken.png").write_bytes(b"no picture")
    run = str(journey / "consistency")
    result = segconf("predict", str(images), "--out", "out", "--checkpoint", run)
    assert result[0] == 3
    assert "Predicted 6 images" in result[1]
    assert "broken.png" in result[2]
    rows = {row["case"]: row for row in table(tmp_path / "out/predictions.csv")}
    header = ["case", "label", "confidence", *(f"p_{name}" for name in COLOURS), "flags"]
    assert list(rows["0"])[:7] == header
    limit = json.loads((journey / "consistency/calibration.json").read_text())["label_referral"]
    for case, row in rows.items():
        if case == "broken":
            assert (row["label"], row["confidence"]) == ("", "")
            assert "cannot be read" in row["flags"]
            continue
        probabilities = [float(row[f"p_{name}"]) for name in COLOURS]
        assert math.fsum(probabilities) == pytest.approx(1, abs=1e-5)
        assert row["label"] == COLOURS[int(np.argmax(probabilities))]
        assert float(row["confidence"]) == max(probabilities)
        is_low = float(row["confidence"]) < limit["threshold"]
        assert ("low confidence" in row["flags"]) == is_low


def test_shards_fill_one_table_and_a_continued_job_predicts_what_is_new(journey, tmp_path):
    images, out = tmp_path / "images", tmp_path / "out"
    write_classes(images, {"all": 3})
    model = load_model(journey / "softmax", device="cpu")
    whole = predict(model, images, tmp_path / "whole")
    for index in range(2):
        predict(model, images, out, shard=Shard(index, 2))
    assert (out / "predictions.csv").read_text() == (tmp_path / "whole/predictions.csv").read_text()
    assert len(whole.rows) == 9
    again = predict(model, images, out, options=PredictOptions(skip_existing=True))
    assert (len(again.rows), again.skipped) == (0, 9)
    Image.fromarray(coloured(99, "red")).save(images / "all/blue/000.png")
    changed = predict(model, images, out, options=PredictOptions(skip_existing=True))
    assert [row.case for row in changed.rows] == ["all/blue/000"]


def test_what_is_for_masks_is_refused(journey, segconf):
    run, images = str(journey / "softmax"), str(journey / "colours/test")
    predict_to = ("predict", images, "--out", "out", "--checkpoint", run)
    for arguments, words in (
        ((*predict_to, "--tile"), "--tile: is for masks; this model predicts labels"),
        ((*predict_to, "--format", "nifti"), "error: --format: is for masks"),
        ((*predict_to, "--save", "probabilities"), "error: --save: is for masks"),
        (("evaluate", run, "--native"), "a label has no grid"),
        (("package", run, "--format", "onnx", "--out", "model.onnx"), "predicts labels"),
        (("package", run, "--format", "page", "--out", "model.html"), "predicts labels"),
        (("triage", run), "predictions.csv of `segconf predict` names the images to refer"),
    ):
        result = segconf(*arguments)
        assert result[0] == 2, arguments
        assert words in result[2]
    with pytest.raises(ConfigError, match=r"^map_format: is for masks"):
        check_label_options(PredictOptions(map_format="png"))


def train_table(segconf, folder):
    """Train `run` on `features.csv`, whose lines are returned."""
    rng = np.random.default_rng(0)
    rows = ["id,age,dose,same,label"]
    for number in range(60):
        label = number % 3
        age, dose = rng.normal([50 + 10 * label, 1e6 * label], [3, 2e5])
        rows.append(f"{number},{age},{dose},7,{'abc'[label] if number % 5 else ''}")
    (folder / "features.csv").write_text("\n".join(rows) + "\n")
    settings = ["training.batch_labeled=8", "training.batch_unlabeled=8"]
    settings += ["training.learning_rate=0.01", "training.device=cpu"]
    chosen = [part for one in settings for part in ("--set", one)]
    result = segconf("train", ".", "--epochs", "8", "--out", "run", *chosen)
    assert result[0] == 0, result[2]
    return rows


def test_a_table_is_standardised_by_its_training_rows(segconf, tmp_path):
    rows = train_table(segconf, tmp_path)
    model = load_model(tmp_path / "run", device="cpu")
    assert model.config.model.encoder == "mlp"
    split = RunFolder(tmp_path / "run").data()
    ids = [int(number) for number in split.training_ids()]
    content = np.array([line.split(",")[1:4] for line in rows[1:]], np.float32)[ids]
    weights = model.checkpoint.model.state_dict()
    mean, std = (next(v for k, v in weights.items() if k.endswith(n)) for n in ("mean", "std"))
    np.testing.assert_allclose(mean.flatten(), content.mean(axis=0, dtype=np.float64), rtol=1e-5)
    expected = content.std(axis=0, dtype=np.float64)
    np.testing.assert_allclose(std.flatten(), [*expected[:2], 1], rtol=1e-5)
    result = segconf("evaluate", "run", "--device", "cpu")
    assert result[0] == 0, result[2]
    content = json.loads((tmp_path / "run/evaluation/test/metrics.json").read_text())
    assert content["metrics"]["all"]["strict"]["accuracy"] > 0.6
    new = ["id,age,dose,same", "x,50,0,7", "y,70,2e6,7"]
    (tmp_path / "new.csv").write_text("\n".join(new) + "\n")
    predicted = ("predict", "--checkpoint", "run", "--out", "out")
    result = segconf(*predicted, "new.csv")
    assert result[0] == 0, result[2]
    found = {row["case"]: row["label"] for row in table(tmp_path / "out/predictions.csv")}
    assert found == {"x": "a", "y": "c"}
    (tmp_path / "new.csv").write_text("id,age\nx,50\n")
    assert segconf(*predicted[:-1], "other", "new.csv")[0] == 3
    (tmp_path / "new.csv").write_text("id,age,dose,same\nx,50,nan,7\n")
    result = segconf(*predicted[:-1], "third", "new.csv")
    assert result[0] == 2
    assert "row 1, dose: nan is no number" in result[2]
    Image.fromarray(coloured(0, "red")).save(tmp_path / "picture.png")
    result = segconf(*predicted[:-1], "fourth", "picture.png")
    assert result[0] == 2
    assert "was trained on a table" in result[2]


def test_columns_of_a_table_may_stand_in_another_order(segconf, tmp_path):
    rows = train_table(segconf, tmp_path)
    swapped = [",".join(line.split(",")[place] for place in (3, 0, 2, 1, 4)) for line in rows]
    (tmp_path / "swapped.csv").write_text("\n".join(swapped) + "\n")
    metrics = []
    for name in ("features.csv", "swapped.csv"):
        options = ("--data", name, "--out", "report", "--device", "cpu")
        result = segconf("evaluate", "run", *options)
        assert result[0] == 0, result[2]
        metrics.append(json.loads((tmp_path / "report/metrics.json").read_text())["metrics"])
    assert metrics[0] == metrics[1]
    (tmp_path / "new.csv").write_text("dose,same,id,age\n0,7,x,50\n2e6,7,y,70\n")
    result = segconf("predict", "--checkpoint", "run", "--out", "out", "new.csv")
    assert result[0] == 0, result[2]
    found = {row["case"]: row["label"] for row in table(tmp_path / "out/predictions.csv")}
    assert found == {"x": "a", "y": "c"}
    assert segconf("predict", "--checkpoint", "run", "--out", "out", "new.csv")[0] == 0
    (tmp_path / "other.csv").write_text("dose,same,id,age\n2e6,7,x,70\n")
    result = segconf("predict", "--checkpoint", "run", "--out", "out", "other.csv")
    assert result[0] == 2
    assert "images in run.json differ" in " ".join(result[2].split())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["model.classes=2"], "model.classes = 2: .* has 3 classes (blue, green, red)"),
        (["data.labeled=2"], "has 3 classes, and each needs a label"),
        (["data.task=segmentation"], "this is a folder for classification"),
        (["data.class_names=[blue, red]"], "the label 'green' is no class (blue, red)"),
    ],
)
def test_settings_that_contradict_the_data_set(segconf, tmp_path, settings, words):
    write_classes(tmp_path / "set", {"train": 2, "val": 1, "test": 1})
    chosen = [part for one in settings for part in ("--set", one)]
    result = segconf("train", "set", "--out", "run", *chosen)
    assert result[0] == 2
    assert re.search(words.replace("(", r"\(").replace(")", r"\)"), result[2])
    assert not (tmp_path / "run").exists()


def test_every_mistake_of_a_data_set_in_one_message(segconf, tmp_path):
    root = write_classes(tmp_path / "set", {"train": 2, "val": 1, "test": 1})
    (root / "train/empty").mkdir()
    Image.fromarray(coloured(0, "red")).save(root / "train/loose.png")
    result = segconf("train", "set", "--out", "run")
    assert result[0] == 2
    assert "2 problems" in result[2]
    assert "empty: a class without any image" in result[2]
    assert "loose.png: lies beside the folders" in result[2]


def test_a_small_grid_is_found_by_itself(segconf, tmp_path):
    write_classes(tmp_path / "set", {"train": 2, "val": 1, "test": 1}, size=10)
    chosen = ["--set", "model.encoder=preact_resnet8", "--set", "model.encoder_weights=none"]
    result = segconf("train", "set", "--epochs", "1", "--out", "run", *chosen)
    assert result[0] == 0, result[2]
    assert RunFolder(tmp_path / "run").config().data.size == (10, 10)


def test_rows_are_kept_while_a_job_runs(journey, tmp_path, monkeypatch):
    """What an interruption loses is at most a few batches."""
    from segconf.inference import label_job
    from segconf.inference.sources import find_images
    from segconf.results.prediction_folder import PredictionFolder

    monkeypatch.setattr(label_job, "WRITTEN_EVERY", 1)
    monkeypatch.setattr(label_job, "batch_size", lambda _config: 2)
    write_classes(tmp_path / "images", {"all": 2})
    (tmp_path / "out").mkdir()
    model = load_model(journey / "softmax", device="cpu", batch_size=2)
    job = LabelJob(model, PredictionFolder(tmp_path / "out"))

    def interrupt(done, _total):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), torch.inference_mode():
        job.run(find_images([tmp_path / "images"]).items, lambda _row: None, interrupt)
    assert len(table(tmp_path / "out/predictions.csv")) == 4


@pytest.mark.parametrize(("asked", "usual"), [(4, 2), (2, 5)])
def test_images_come_in_whole_batches_of_the_asked_size(
    journey, tmp_path, monkeypatch, asked, usual
):
    from segconf.inference import label_job
    from segconf.inference.sources import find_images
    from segconf.results.prediction_folder import PredictionFolder

    monkeypatch.setattr(label_job, "batch_size", lambda _config: usual)
    write_classes(tmp_path / "images", {"all": 3})
    (tmp_path / "out").mkdir()
    model = load_model(journey / "softmax", device="cpu", batch_size=asked)
    done = []
    LabelJob(model, PredictionFolder(tmp_path / "out")).run(
        find_images([tmp_path / "images"]).items,
        lambda _row: None,
        lambda count, _total: done.append(count),
    )
    assert done == [4, 8, 9]


def test_convergence_of_labels_is_told_by_their_accuracy(journey, segconf):
    still = (
        "--epochs",
        "40",
        "--set",
        "training.learning_rate=1e-9",
        "--set",
        "training.patience=1",
    )
    code, out, err = segconf("train", journey / "colours", *TRAIN, *still, "--method", "softmax")
    assert code == 0, err
    assert ", converged: 1 validations without a better accuracy or AURC; best epoch" in out
