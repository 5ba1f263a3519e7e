"""An ensemble: several networks by one command, one model afterwards."""

import json
import shutil

import numpy as np
import pytest
import torch

from segconf.checkpoints.weights import load_checkpoint, save_checkpoint
from segconf.config.loading import load_config
from segconf.errors import CheckpointError, TrainingError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.inference.model import load_model
from segconf.methods.method import method_of
from segconf.runs.run_folder import RunFolder, newest_run
from segconf.training.epoch import TrainingListener
from tests.averages import assert_predicts_the_mean, pixels, softmax
from tests.training_runs import (
    Interrupter,
    contents,
    differences,
    settings,
    train_tiny,
    use_network,
)

CHANGES = {"training__method": "ensemble", "training__members": 2, "training__epochs": 2}


class Members(TrainingListener):
    def __init__(self):
        self.seen = []

    def on_member(self, number, members):
        self.seen.append((number, members))

    def on_start(self, folder, epoch, epochs):
        self.seen.append((folder.name, epoch, epochs))


@pytest.fixture
def run(folder_dataset, tmp_path, monkeypatch):
    """A finished ensemble of two."""
    use_network(monkeypatch)
    train_tiny(folder_dataset, tmp_path / "runs/run", training__seed=5, **CHANGES)
    return tmp_path / "runs/run"


def test_members_share_images_and_differ_in_their_seed(folder_dataset, tmp_path, run):
    # A member is the softmax run of its seed on the common images, to the last bit.
    for number, seed in enumerate((5, 6)):
        train_tiny(
            folder_dataset,
            tmp_path / f"alone{seed}",
            training__method="softmax",
            training__epochs=2,
            training__seed=seed,
            data__split_seed=5,
        )
        member = run / "members" / str(number)
        assert differences(contents(tmp_path / f"alone{seed}"), contents(member)) == []
        split = json.loads((member / "split.json").read_text())
        assert split == json.loads((run / "split.json").read_text())
        assert RunFolder(member).config().training.seed == seed
    assert differences(contents(run / "members/0"), contents(run / "members/1"))
    files = {path.name for path in run.iterdir()}
    assert files == {
        *("config.yaml", "split.json", "environment.json", "members", "best.safetensors")
    }


def test_probabilities_are_the_mean_of_the_members(run):
    each = [softmax(load_model(run / "members" / n).grid_logits(pixels())) for n in "01"]
    model = load_model(run)
    assert model.predictor.count == 2
    found = softmax(model.grid_logits(pixels()))
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-5, atol=1e-7)
    assert np.abs(each[0] - each[1]).max() > 1e-3


def test_identical_members_are_one_member(run):
    shutil.copy(run / "members/0/best.safetensors", run / "members/1/best.safetensors")
    expected = load_model(run / "members/0").grid_logits(pixels())
    found = load_model(run).grid_logits(pixels())
    np.testing.assert_allclose(softmax(found), softmax(expected), rtol=1e-6, atol=1e-8)


def test_the_temperature_is_that_of_the_mean(folder_dataset, run):
    before = load_model(run).grid_logits(pixels())
    checkpoint = load_checkpoint(run)
    weights = checkpoint.model.state_dict()
    save_checkpoint(checkpoint.path, weights, checkpoint.config, temperature=2.0)
    np.testing.assert_allclose(load_model(run).grid_logits(pixels()), before / 2, rtol=1e-6)
    # A finished ensemble that is continued keeps it.
    train_tiny(folder_dataset, run, resume=True, training__seed=5, **CHANGES)
    assert load_checkpoint(run).temperature == 2.0


@pytest.mark.parametrize(("member", "epoch"), [(0, 1), (1, 0), (1, 1)])
def test_an_interrupted_ensemble_goes_on_with_the_unfinished_member(
    folder_dataset, tmp_path, run, member, epoch
):
    class InMember(Interrupter):
        def on_member(self, number, members):  # noqa: ARG002
            self._member = number

        def on_step(self, step, steps, terms):
            if self._member == member:
                super().on_step(step, steps, terms)

    other = tmp_path / "other"
    listener = InMember(epoch, 1)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, other, listener=listener, training__seed=5, **CHANGES)
    with pytest.raises(CheckpointError, match=r"not all members .* --resume"):
        load_model(other)
    listener = Members()
    train_tiny(folder_dataset, other, resume=True, listener=listener, training__seed=5, **CHANGES)
    done = [2 if number < member else 0 for number in range(2)]
    done[member] = epoch
    assert listener.seen == [(0, 2), ("0", done[0], 2), (1, 2), ("1", done[1], 2)]
    for name in ("members/0", "members/1"):
        assert differences(contents(run / name), contents(other / name)) == []
    assert torch.equal(
        load_checkpoint(other).model.first.weight, load_checkpoint(run).model.first.weight
    )


def test_what_a_crash_left_of_a_start_is_no_obstacle(folder_dataset, run):
    shutil.rmtree(run / "members/1")
    (run / "best.safetensors").unlink()
    (run / "members/1").mkdir()
    (run / "members/1/config.yaml").write_text("half")
    (run / "members/1/.split.json.1.part").write_text("half")
    train_tiny(folder_dataset, run, resume=True, training__seed=5, **CHANGES)
    assert load_model(run).predictor.count == 2


def test_more_epochs_for_all_members(folder_dataset, tmp_path, run):
    longer = CHANGES | {"training__epochs": 3, "training__seed": 5}
    train_tiny(folder_dataset, run, resume=True, **longer)
    train_tiny(folder_dataset, tmp_path / "at once", **longer)
    for name in ("members/0", "members/1"):
        assert differences(contents(tmp_path / "at once" / name), contents(run / name)) == []
    assert load_checkpoint(run).config.training.epochs == 3


def test_another_number_of_members_is_another_run(folder_dataset, run):
    changes = CHANGES | {"training__members": 3, "training__seed": 5}
    with pytest.raises(TrainingError, match=r"training\.members was 2, now 3"):
        train_tiny(folder_dataset, run, resume=True, **changes)


def test_the_disk_must_hold_all_members(folder_dataset, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=120_000_000))
    with pytest.raises(TrainingError, match=r"needs about 0\.2 GB on the disk"):
        train_tiny(folder_dataset, tmp_path / "run", **CHANGES | {"training__members": 3})


def test_a_missing_member_is_noticed(run):
    (run / "members/1/best.safetensors").unlink()
    with pytest.raises(CheckpointError, match="a member of the ensemble is missing"):
        load_model(run)


def test_evaluated_like_any_other_run(run):
    assert newest_run(run.parent) == run
    evaluate(run, EvaluationOptions("test", device="cpu"))
    content = json.loads((run / "evaluation/test/metrics.json").read_text())
    assert (content["method"], content["seed"], content["labeled"]) == ("ensemble", 5, 4)


def member_configs(**changes):
    config = settings(**CHANGES | {"training__members": 5}, **changes)
    return method_of(config).member_configs(config)


def test_the_configuration_of_a_member():
    config = member_configs(training__seed=3, data__split_seed=9)[4]
    assert (config.training.method, config.training.seed, config.data.split_seed) == (
        *("softmax", 7, 9),
    )
    assert member_configs(training__seed=3)[1].data.split_seed == 3
    assert not config.training.ood_detector  # the ensemble as a whole has one
    assert load_config().training.members == 5


def test_predicted_like_any_other_run(run, tmp_path):
    each = [load_model(run / "members" / number) for number in "01"]
    assert_predicts_the_mean(run, each, tmp_path)
