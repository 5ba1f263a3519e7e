"""What can go wrong is said before the first epoch, or with the last good checkpoint."""

import shutil
from types import SimpleNamespace

import pytest
import torch

from segconf.checkpoints import state
from segconf.errors import ConfigError, DataError, SegconfError, TrainingError
from segconf.locks import LockedError, locked
from segconf.training.epoch import TrainingListener
from tests.conftest import write_folder
from tests.training_runs import TinyNetwork, contents, differences, train_tiny


class Never(TrainingListener):
    def on_start(self, folder, epoch, epochs):  # noqa: ARG002
        pytest.fail("the training has started")

    def on_prepare(self, label, done, total):  # noqa: ARG002
        pytest.fail("images are decoded before the folder is checked")


def test_a_folder_with_content_is_refused(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(TrainingError, match=r"already holds a run.*--resume"):
        train_tiny(folder_dataset, tmp_path / "run", listener=Never())
    assert differences(before, contents(tmp_path / "run")) == []


def test_a_folder_that_cannot_be_made_is_refused(folder_dataset, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match=r"cannot be written .*folder that you may write to"):
        train_tiny(folder_dataset, tmp_path / "file/run", listener=Never())


def test_a_read_only_folder_is_refused(folder_dataset, tmp_path, monkeypatch):
    # Not by permissions: a superuser is allowed everything.
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(TrainingError, match=r"not a writable folder.*that you may write to"):
        train_tiny(folder_dataset, tmp_path / "run", listener=Never())
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_refused(folder_dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=40_000_000))
    with pytest.raises(TrainingError, match=r"needs about 0.1 GB .* 0.0 GB are free"):
        train_tiny(folder_dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_fills_up_names_the_last_checkpoint(folder_dataset, tmp_path, monkeypatch):
    save = torch.save

    def failing(content, path):
        if len(content["summaries"]) == 3:
            raise RuntimeError("unexpected pos 576 vs 470\nmore")
        save(content, path)

    monkeypatch.setattr(state.torch, "save", failing)
    with pytest.raises(TrainingError, match=r"epoch 3 cannot be written .* after epoch 2.*resume"):
        train_tiny(folder_dataset, tmp_path / "run")
    monkeypatch.undo()
    train_tiny(folder_dataset, tmp_path / "run", resume=True)
    train_tiny(folder_dataset, tmp_path / "whole")
    assert differences(contents(tmp_path / "whole"), contents(tmp_path / "run")) == []


class Breaking(TinyNetwork):
    """Its output is NaN in training from the sixth step on."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, images):
        self.calls += self.training
        broken = self.training and self.calls > 10  # two calls a step
        return super().forward(images) * (float("nan") if broken else 1.0)


def test_a_loss_that_is_not_finite_names_epoch_step_images_and_checkpoint(folder_dataset, tmp_path):
    with pytest.raises(TrainingError) as stopped:
        train_tiny(folder_dataset, tmp_path / "run", network=Breaking)
    message = str(stopped.value)
    # Two steps an epoch: the sixth step is the second of epoch 3.
    assert "not a finite number at epoch 3, step 2, images case_0" in message
    assert message.count("case_00") == 4  # 2 labeled and 2 unlabeled
    assert f"{tmp_path / 'run' / 'last.ckpt'}, after epoch 2" in message
    saved = torch.load(tmp_path / "run/last.ckpt", weights_only=True)
    assert all(torch.isfinite(weight).all() for weight in saved["model"].values())
    assert len(saved["summaries"]) == 2


def test_only_a_checkpoint_that_was_written_is_named(folder_dataset, tmp_path):
    # Two epochs are finished when the third breaks, but the first checkpoint is due after it.
    with pytest.raises(TrainingError, match=r"at epoch 3, .*There is no checkpoint yet"):
        train_tiny(folder_dataset, tmp_path / "run", network=Breaking, training__checkpoint_every=3)


class BreakingLater(TinyNetwork):
    def forward(self, images):
        return super().forward(images) + (0.0 if self.training else float("inf"))


def test_validation_that_is_not_finite_stops_as_well(folder_dataset, tmp_path):
    with pytest.raises(TrainingError, match=r"after epoch 1 .*not finite.*no checkpoint yet"):
        train_tiny(folder_dataset, tmp_path / "run", network=BreakingLater)


def test_a_data_set_without_validation_images_is_refused(tmp_path):
    root = write_folder(tmp_path / "data", 8)
    with pytest.raises(DataError, match="no validation images with masks"):
        train_tiny(root, tmp_path / "run", data__validation_fraction=0.0, data__test_fraction=0.0)
    write_folder(root / "val", 2, first=100, masks=0)
    with pytest.raises(DataError, match="no validation images with masks"):
        train_tiny(root, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_devices_that_are_not_there_are_refused(folder_dataset, tmp_path):
    with pytest.raises(ConfigError, match="precision = bfloat16: needs CUDA"):
        train_tiny(folder_dataset, tmp_path / "run", training__precision="bfloat16")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device is visible"):
            train_tiny(folder_dataset, tmp_path / "run", training__device="cuda")


def test_broken_images_leave_no_run_behind(folder_dataset, tmp_path):
    (folder_dataset / "images/case_002.png").write_bytes(b"not a picture")
    with pytest.raises(SegconfError, match="case_002"):
        train_tiny(folder_dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_one_process_at_a_time_trains_in_a_folder(folder_dataset, tmp_path):
    with (
        locked(tmp_path / "run", wait=False),
        pytest.raises(LockedError, match="another process trains or calibrates it"),
    ):
        train_tiny(folder_dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
