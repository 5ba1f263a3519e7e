"""Training that keeps snapshots: the method aes, and any other that is asked to."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from segconf.checkpoints.state import last_weights
from segconf.checkpoints.weight_files import kept_snapshots
from segconf.checkpoints.weights import save_checkpoint
from segconf.errors import CheckpointError, ConfigError, TrainingError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.inference.model import load_model
from segconf.runs.run_folder import RunFolder, newest_run
from tests.averages import assert_predicts_the_mean, pixels, softmax
from tests.training_runs import (
    Interrupter,
    contents,
    differences,
    settings,
    train_tiny,
    use_network,
)


def snapshots(run):
    return {
        f"{epoch} {name}": value
        for epoch, file in kept_snapshots(run).items()
        for name, value in load_file(file).items()
    }


def test_aes_trains_like_softmax(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "softmax", training__method="softmax")
    train_tiny(folder_dataset, tmp_path / "aes", training__method="aes")
    one, other = contents(tmp_path / "softmax"), contents(tmp_path / "aes")
    assert differences(one, other) == []
    assert list(kept_snapshots(tmp_path / "aes")) == [1, 2, 3, 4]
    assert not (tmp_path / "softmax/snapshots").exists()


def test_a_snapshot_holds_the_weights_that_are_evaluated(folder_dataset, tmp_path):
    changes = {"training__snapshots": 2, "training__snapshot_precision": "float32"}
    train_tiny(folder_dataset, tmp_path / "run", **changes)
    state = torch.load(tmp_path / "run/last.ckpt", weights_only=True)
    last = load_file(tmp_path / "run/snapshots/epoch-0004.safetensors")
    ema = {name.removeprefix("module."): value for name, value in state["ema"].items()}
    del ema["n_averaged"]
    assert differences(last, ema) == []  # the moving average, as in best
    assert list(kept_snapshots(tmp_path / "run")) == [2, 4]


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (2, 2), (3, 1)])
def test_an_interrupted_run_has_the_same_snapshots(folder_dataset, tmp_path, epoch, step):
    changes = {"training__snapshots": 3}
    train_tiny(folder_dataset, tmp_path / "reference", **changes)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(epoch, step), **changes)
    train_tiny(folder_dataset, run, resume=True, **changes)
    assert differences(contents(tmp_path / "reference"), contents(run)) == []
    expected = snapshots(tmp_path / "reference")
    assert {name.split()[0] for name in expected} == {"2", "3", "4"}
    assert differences(expected, snapshots(run)) == []


def test_a_fallback_takes_later_snapshots_back(folder_dataset, tmp_path):
    changes = {"training__snapshots": 4}
    train_tiny(folder_dataset, tmp_path / "reference", **changes)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(3, 1), **changes)
    (run / "last.ckpt").write_bytes(b"damaged")  # of epoch 3: continue after epoch 2
    (run / "snapshots/epoch-0003.safetensors").write_bytes(b"of a lost future")
    # Stopped at once: what is on the disk now belongs to the two epochs that count.
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(2, 1), resume=True, **changes)
    assert list(kept_snapshots(run)) == [1, 2]
    train_tiny(folder_dataset, run, resume=True, **changes)
    assert differences(snapshots(tmp_path / "reference"), snapshots(run)) == []


def test_more_epochs_would_move_the_snapshots(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "run", training__snapshots=2)
    with pytest.raises(TrainingError, match="decides when snapshots are taken"):
        train_tiny(
            folder_dataset,
            tmp_path / "run",
            resume=True,
            training__snapshots=2,
            training__epochs=6,
        )


def test_snapshots_count_in_the_space_on_the_disk(folder_dataset, tmp_path, monkeypatch):
    # The tiny network needs little more than the 50 MB that are always spared.
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=50_100_000))
    train_tiny(folder_dataset, tmp_path / "few", training__method="softmax")
    changes = {"training__epochs": 400, "training__snapshots": 400}
    with pytest.raises(TrainingError, match="on the disk"):
        train_tiny(folder_dataset, tmp_path / "many", training__method="softmax", **changes)


@pytest.fixture
def run(folder_dataset, tmp_path, monkeypatch):
    """A finished aes run of a network small enough to be trained in a moment."""
    use_network(monkeypatch)
    train_tiny(folder_dataset, tmp_path / "runs/aes", training__method="aes", training__epochs=3)
    return tmp_path / "runs/aes"


def single(run, epoch, folder):
    """One snapshot as a softmax model of its own."""
    config = settings(training__method="softmax")
    values = {
        name: value.float() if value.is_floating_point() else value
        for name, value in load_file(kept_snapshots(run)[epoch]).items()
    }
    save_checkpoint(folder / f"{epoch}.safetensors", values, config)
    return load_model(folder / f"{epoch}.safetensors")


def test_probabilities_are_the_mean_of_all_snapshots(run, tmp_path):
    models = [single(run, epoch, tmp_path) for epoch in (1, 2, 3)]
    each = [softmax(model.grid_logits(pixels())) for model in models]
    found = softmax(load_model(run).grid_logits(pixels()))
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-5, atol=1e-7)
    assert np.abs(each[0] - each[2]).max() > 1e-3  # they differ, so the mean says something


def test_one_snapshot_is_softmax(folder_dataset, tmp_path, monkeypatch):
    use_network(monkeypatch)
    changes = {"training__method": "aes", "training__snapshots": 1}
    train_tiny(folder_dataset, tmp_path / "run", **changes)
    found = softmax(load_model(tmp_path / "run").grid_logits(pixels()))
    expected = softmax(single(tmp_path / "run", 4, tmp_path).grid_logits(pixels()))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_patience_does_not_go_with_snapshots_over_all_epochs(folder_dataset, tmp_path):
    changes = {"training__method": "aes", "training__patience": 2}
    with pytest.raises(ConfigError, match=r"training.patience = 2: .* spreads its snapshots"):
        train_tiny(folder_dataset, tmp_path / "run", **changes)


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_weights_of_the_last_epoch_are_those_of_its_snapshot(
    folder_dataset, tmp_path, monkeypatch, ema_decay
):
    use_network(monkeypatch)
    run, changes = tmp_path / "run", {"training__method": "softmax", "training__snapshots": 1}
    changes |= {"training__snapshot_precision": "float32", "training__ema_decay": ema_decay}
    train_tiny(folder_dataset, run, **changes)
    last = evaluate(run, EvaluationOptions(device="cpu", weights="last"))
    shutil.copytree(run, tmp_path / "other")
    weights = load_file(kept_snapshots(run)[4])
    save_checkpoint(tmp_path / "other/best.safetensors", weights, settings(**changes))
    expected = evaluate(tmp_path / "other", EvaluationOptions(device="cpu"))
    assert last.report.metrics == expected.report.metrics
    assert last.folder == run / "evaluation/test-last"
    about, other = last.report.about, expected.report.about
    assert (about["weights"], other["weights"]) == ("last", "best")
    assert about["weights_sha256"] == other["weights_sha256"]
    assert (about["training_epochs"], about["temperature"]) == ([4], 1.0)


def test_a_run_of_several_networks_has_no_last_weights(run):
    with pytest.raises(ConfigError, match="aes, which averages several networks"):
        evaluate(run, EvaluationOptions(device="cpu", weights="last"))
    (run.parent / "plain").mkdir()
    with pytest.raises(CheckpointError, match=r"last\.ckpt: the weights of the last epoch cannot"):
        last_weights(RunFolder(run.parent / "plain"))


def test_using_a_model_leaves_its_own_weights_alone(run):
    model = load_model(run)
    before = {name: value.clone() for name, value in model.checkpoint.model.state_dict().items()}
    model.grid_logits(pixels())
    assert differences(before, dict(model.checkpoint.model.state_dict())) == []


def test_the_hash_covers_the_snapshots(run):
    before = load_model(run).weights_sha256
    shutil.copy(kept_snapshots(run)[1], kept_snapshots(run)[3])
    assert load_model(run).weights_sha256 != before


def test_missing_snapshots_are_noticed(run, tmp_path, caplog):
    shutil.copy(run / "best.safetensors", tmp_path / "alone.safetensors")
    with pytest.raises(CheckpointError, match="complete run folder"):
        load_model(tmp_path / "alone.safetensors")
    kept_snapshots(run)[3].unlink()
    assert load_model(run).predictor.count == 2
    assert "averaging 2 of 3 snapshots" in caplog.text
    kept_snapshots(run)[1].unlink()
    with pytest.raises(CheckpointError, match="that of epoch 1 is not in snapshots/"):
        load_model(run)


def test_evaluated_like_any_other_run(run):
    assert newest_run(run.parent) == run
    evaluation = evaluate(run, EvaluationOptions("test", device="cpu"))
    content = json.loads((run / "evaluation/test/metrics.json").read_text())
    assert content["method"] == "aes"
    assert 0 < evaluation.report.metrics["all"]["strict"]["aurc"] < 1


def test_predicted_like_any_other_run(run, tmp_path):
    each = [single(run, epoch, tmp_path) for epoch in (1, 2, 3)]
    assert_predicts_the_mean(run, each, tmp_path)
