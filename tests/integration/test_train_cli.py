"""`segconf train` and `segconf history` as a user types them."""

import functools
import json

import numpy as np
import pytest
from PIL import Image

import segconf.training.train as trainer
from segconf.plots.training_curves import training_curves
from segconf.registry import METHODS
from segconf.synthetic import generation as demo
from tests.training_runs import Interrupter, TinyNetwork, use_network

SMALL = [
    *("--set", "data.size=[32, 32]", "--set", "model.encoder_weights=none"),
    *("--set", "training.batch_labeled=2", "--set", "training.batch_unlabeled=4"),
    *("--device", "cpu", "--epochs", "2"),
]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    use_network(monkeypatch, TinyNetwork)


def test_the_demo_is_made_trained_and_continued(segconf, monkeypatch, tmp_path):
    tiny = functools.partial(demo.DemoParameters, training=8, validation=3, test=1, size=(32, 32))
    monkeypatch.setattr("segconf.data.datasets.demo.DemoParameters", tiny)
    code, out, err = segconf("train", "demo", "--labeled", 4, "--set", "training.seed=5", *SMALL)

    run = tmp_path / "runs/demo-consistency-4-seed5"
    assert code == 0
    assert "segconf evaluate runs/demo-consistency-4-seed5" in err
    # Plain lines, since this is no terminal.
    assert [line[:10] for line in err.splitlines() if line.startswith("epoch")] == [
        "epoch 1/2 ",
        "epoch 2/2 ",
    ]
    assert all(word in err for word in ("supervised", "correctness", "consistency"))
    assert all(word in err for word in ("mIoU", "AURC", "ECE"))
    with Image.open(run / "training.png") as picture:
        assert picture.size == (1100, 715)
    assert len(json.loads((run / "split.json").read_text())["labeled"]) == 4

    monkeypatch.chdir("/")  # the run knows where its data is
    code, out, _ = segconf("train", "--resume", run, "--epochs", 3)
    assert code == 0
    assert "Finished 3 epochs" in out


def test_the_summary_tells_members_and_snapshots(segconf, folder_dataset, tmp_path):
    two = ["--method", "ensemble", "--set", "training.members=2"]
    kept = ["--set", "training.snapshots=2"]
    code, out, err = segconf("train", folder_dataset, "--out", "run", *two, *kept, *SMALL)
    assert code == 0
    shown = [line for line in err.splitlines() if line.startswith(("member", "run folder"))]
    assert shown == [
        *("member 1 of 2", "run folder: run/members/0"),
        *("member 2 of 2", "run folder: run/members/1"),
    ]
    assert "Finished 2 members of ensemble" in out
    assert "Finished 2 epochs of member 2; best epoch" in out
    files = list((tmp_path / "run").glob("members/*/snapshots/epoch-*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    assert len(files) == 4
    assert f"Kept 4 snapshots, {size / 1e6:.1f} MB." in out
    assert "segconf evaluate run\n" in err
    assert all((tmp_path / f"run/members/{n}/training.png").exists() for n in (0, 1))

    code, _, err = segconf("history", "run", "--out", "maps")
    assert code == 2
    assert "the method ensemble keeps no history" in err


def test_the_history_as_pictures_and_arrays(segconf, folder_dataset, tmp_path):
    segconf("train", folder_dataset, "--labeled", 3, "--out", "run", *SMALL)
    code, out, _ = segconf("history", "run", "--out", "maps")

    assert code == 0
    assert "8 images after 2 epochs" in out
    names = {f"case_{number:03d}" for number in range(8)}
    assert {path.stem for path in (tmp_path / "maps/pictures").iterdir()} == names
    labeled = set(json.loads((tmp_path / "run/split.json").read_text())["labeled"])
    assert {path.stem for path in (tmp_path / "maps/correctness").iterdir()} == labeled
    agreements = np.load(tmp_path / "run/history/agreements-0002.npy")
    for slot, name in enumerate(sorted(names)):
        consistency = np.load(tmp_path / f"maps/consistency/{name}.npy")
        assert np.array_equal(consistency, agreements[slot])  # one comparison: 0 or 1
        with Image.open(tmp_path / f"maps/pictures/{name}.png") as picture:
            # Two panels, or three for a labeled image.
            assert (picture.width > 1000) is (name in labeled)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "DATASET is missing"),
        (["nowhere"], "nowhere: no such folder or data set"),
        (["discs", "--labeled", "99"], "has 8 training images with masks"),
        (["discs", "--set", "training.method=magic"], "training.method"),
        (["discs", "--epochs", "0"], "training.epochs"),
        (["discs", "--set", "training.speed=3"], "training.speed"),
        (["discs", "--config", "none.yaml"], "none.yaml: no such file"),
        (["--resume", "nothing"], "nothing: not a run folder"),
        (["--resume", "discs", "--out", "x"], "--out: --resume writes into the run it continues"),
        (["discs", "--out", "discs"], "discs: already holds a run or other files"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(segconf, folder_dataset, arguments, named):
    assert folder_dataset.name == "discs"
    code, out, err = segconf("train", *arguments)
    assert code == 2
    assert out == ""
    assert err.lstrip().startswith("error: ")
    assert named in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("folder_dataset")
def test_an_unknown_method_is_refused_with_the_known_ones(segconf):
    code, out, err = segconf("train", "discs", "--method", "magic")
    assert (code, out) == (2, "")
    assert "'--method': 'magic' is not one of" in err
    assert all(f"'{name}'" in err for name in METHODS.names())
    assert "Traceback" not in err


def test_an_interrupt_says_how_to_go_on(segconf, folder_dataset, monkeypatch, tmp_path):
    original = trainer.Trainer.run_epoch
    interrupter = Interrupter(1, 1)

    def run_epoch(self, state):
        interrupter._now = state.epoch
        self.listener.on_step = interrupter.on_step
        return original(self, state)

    monkeypatch.setattr(trainer.Trainer, "run_epoch", run_epoch)
    code, _, err = segconf("train", folder_dataset, "--out", "run", *SMALL)
    assert code == 130
    assert "segconf train --resume run" in err
    assert (tmp_path / "run/training.png").exists()


def test_the_history_of_a_run_without_one_is_refused(segconf, folder_dataset):
    segconf("train", folder_dataset, "--method", "softmax", "--out", "run", *SMALL)
    code, _, err = segconf("history", "run", "--out", "maps")
    assert code == 2
    assert "softmax keeps no history" in err


def test_only_the_first_process_talks(segconf, folder_dataset, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    code, out, err = segconf("train", folder_dataset, "--labeled", 99)
    assert (code, out, err) == (2, "", "")


@pytest.mark.parametrize("rows", [1, 3, 60])
def test_curves_of_any_length_can_be_drawn(tmp_path, rows):
    header = "epoch,steps,supervised,correctness,consistency"
    columns = ",".join(
        f"{prefix}{name}" for prefix in ("", "ema_") for name in ("miou", "aurc", "ece", "nll")
    )
    lines = [
        f"{epoch},4,{1 / (1 + epoch)},0.0,0.0" + ",0.5,0.1,0.1,0.3" + ",,,,"
        for epoch in range(rows)
    ]
    (tmp_path / "epochs.csv").write_text("\n".join([f"{header},{columns}", *lines]) + "\n")
    training_curves(tmp_path / "epochs.csv", tmp_path / "training.png")
    with Image.open(tmp_path / "training.png") as picture:
        assert picture.size == (1100, 715)
