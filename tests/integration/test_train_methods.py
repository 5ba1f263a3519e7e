"""What a training reads, remembers and ranks, from files on disk to the run folder."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from segconf.training.epoch import TrainingListener
from segconf.training.history_maps import history_maps
from tests.conftest import write_folder
from tests.references.history import SlowHistory
from tests.training_runs import contents, differences, train_tiny

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def table(run):
    with (run / "epochs.csv").open() as file:
        return list(csv.DictReader(file))


class DriftingThreshold(nn.Module):
    """Class 1 where red is above a threshold that moves with every call; keeps what it saw."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(3.0))
        self.seen = []
        DriftingThreshold.last = self

    def forward(self, images):
        threshold = -0.5 + 0.37 * (len(self.seen) % 7)
        gap = self.scale * (images[:, 0] - threshold)
        self.seen.append((self.training, images.detach().clone(), (gap > 0).to(torch.uint8)))
        return torch.stack([-gap, gap], dim=1)


class Epochs(TrainingListener):
    """How many calls the network has had at the end of each epoch's training."""

    def __init__(self):
        self.ends = []
        self.calls = 0

    def on_step(self, step, steps, terms):  # noqa: ARG002
        self.calls = len(DriftingThreshold.last.seen)

    def on_epoch(self, summary):  # noqa: ARG002
        self.ends.append(self.calls)


def pixels_of(image):
    """A normalised view (C, H, W) back in bytes."""
    values = image.permute(1, 2, 0).double().numpy() * STD + MEAN
    return np.rint(values * 255).astype(np.uint8).tobytes()


@pytest.mark.parametrize(
    ("method", "history"),
    [("consistency", "online"), ("consistency", "sweep"), ("distillation", "online")],
)
def test_the_history_holds_exactly_the_plain_predictions(folder_dataset, tmp_path, method, history):
    epochs = Epochs()
    train_tiny(
        folder_dataset,
        tmp_path / "run",
        network=DriftingThreshold,
        listener=epochs,
        training__method=method,
        training__history=history,
        training__ema_decay=0.0,
        training__ood_detector=False,  # it would load the weights into another network
    )

    known = {}
    masks = {}
    for path in (folder_dataset / "images").iterdir():
        known[np.asarray(Image.open(path)).tobytes()] = path.stem
        mask = np.asarray(Image.open(folder_dataset / "masks" / path.name)) > 0
        masks[path.stem] = mask.astype(int).ravel().tolist()
    slow = SlowHistory()
    # Online, the steps are recorded (training mode); a sweep is in evaluation mode, before them.
    recorded = 0
    for call, (training, images, prediction) in enumerate(DriftingThreshold.last.seen):
        names = [known.get(pixels_of(image)) for image in images]
        if training is (history == "sweep") or None in names:
            continue
        epoch = sum(call >= end for end in epochs.ends)
        recorded += 1
        said = prediction.flatten(1).tolist()
        slow.record(names, said, epoch, [masks[name] for name in names])
    assert recorded == (8 if history == "online" else 4)  # 2 steps, or 1 sweep, per epoch

    count, maps = history_maps(tmp_path / "run")
    labeled = json.loads((tmp_path / "run/split.json").read_text())["labeled"]
    assert count == 8
    for found in maps:
        assert found.consistency.ravel().tolist() == pytest.approx(slow.consistency(found.id))
        assert 0 < found.consistency.mean() < 1
        assert (found.correctness is not None) is (found.id in labeled)
        if found.id in labeled:
            assert found.correctness.ravel().tolist() == pytest.approx(slow.correctness(found.id))
        assert found.image.tobytes() in known


def test_masks_of_unlabeled_images_are_never_needed(folder_dataset, tmp_path):
    ids = ["case_001", "case_004", "case_006"]
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    changes = {"data__labeled": None, "data__labeled_list": str(tmp_path / "ids.txt")}
    train_tiny(folder_dataset, tmp_path / "with", **changes)
    for path in (folder_dataset / "masks").iterdir():
        if path.stem not in ids:
            path.unlink()
    train_tiny(folder_dataset, tmp_path / "without", **changes)

    one, other = contents(tmp_path / "with"), contents(tmp_path / "without")
    assert differences(one, other) == []
    assert json.loads((tmp_path / "with/split.json").read_text())["labeled"] == ids


def test_unlabeled_images_of_a_held_out_patient_are_validated_by_nothing(tmp_path):
    flat = write_folder(tmp_path / "flat", 20, masks=10)
    for kind, count in (("images", 20), ("masks", 10)):
        for number in range(count):
            name = f"{'ab'[number // 10]}.png"
            target = tmp_path / "patients" / kind / f"p{number % 10}" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (flat / kind / f"case_{number:03d}.png").rename(target)
    train_tiny(tmp_path / "patients", tmp_path / "run", training__epochs=1, calibrate=True)
    split = json.loads((tmp_path / "run/split.json").read_text())
    held_out = {id_.split("/")[0] for id_ in split["validation"]}
    assert len(split["validation"]) == 2 * len(held_out) > 0
    stored = json.loads((tmp_path / "run/calibration.json").read_text())
    assert stored["temperature"]["images"] == len(held_out)
    train_tiny(tmp_path / "patients", tmp_path / "run", training__epochs=2, resume=True)


@pytest.mark.parametrize(
    ("method", "terms", "images"),
    [("softmax", (0, 0), 0), ("crl", (1, 0), 4), ("consistency", (1, 1), 8)],
)
def test_terms_and_history_of_the_methods(folder_dataset, tmp_path, method, terms, images):
    train_tiny(folder_dataset, tmp_path / "run", training__method=method)
    last = table(tmp_path / "run")[-1]
    assert float(last["supervised"]) > 0
    known = [float(last.get(name, 0)) > 0 for name in ("correctness", "consistency")]
    assert tuple(known) == terms
    assert tuple(name in last for name in ("correctness", "consistency")) == terms
    stored = list((tmp_path / "run/history").glob("last_prediction-0004.npy"))
    assert [len(np.load(path)) for path in stored] == ([images] if images else [])
    assert last["steps"] == "2"  # 4 images, unlabeled ones if there are any, in batches of 2


def test_an_epoch_is_one_pass_over_the_unlabeled_images(tmp_path):
    root = write_folder(tmp_path / "data", 13, masks=3)
    write_folder(root / "val", 2, first=100)
    write_folder(root / "test", 1, first=200)
    train_tiny(root, tmp_path / "run", data__labeled=3, training__batch_unlabeled=4)
    # 10 unlabeled images in batches of at most 4: three steps.
    assert [row["steps"] for row in table(tmp_path / "run")] == ["3"] * 4


def test_all_labeled_ranks_consistency_on_the_labeled_images(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "run", data__labeled=None)
    rows = table(tmp_path / "run")
    assert [row["steps"] for row in rows] == ["4"] * 4  # 8 images, batches of 2
    assert float(rows[0]["consistency"]) == 0  # nothing to compare with yet
    assert all(float(row["consistency"]) > 0 for row in rows[1:])


def test_history_and_ranking_start_late(folder_dataset, tmp_path):
    train_tiny(
        folder_dataset, tmp_path / "run", training__history_start=1, training__ranking_warmup=2
    )
    rows = table(tmp_path / "run")
    assert [float(row["correctness"]) > 0 for row in rows] == [False, False, True, True]
    facts = json.loads((tmp_path / "run/history/epoch-0004.json").read_text())["facts"]
    assert facts["records"] == [3] * 8


class Plain(nn.Module):
    """Neither BatchNorm nor dropout: parts of a batch do not influence each other."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))

    def forward(self, images):
        return self.layers(images)


def test_accumulated_gradients_are_those_of_the_whole_batch(folder_dataset, tmp_path):
    states = {}
    for parts in (1, 2):
        train_tiny(
            folder_dataset,
            tmp_path / f"run{parts}",
            network=Plain,
            data__labeled=None,
            training__method="softmax",
            training__batch_labeled=4,
            training__accumulate=parts,
            augmentation__scale=[1.0, 1.0],
            augmentation__horizontal_flip=0.0,
            augmentation__vertical_flip=0.0,
        )
        states[parts] = torch.load(tmp_path / f"run{parts}/last.ckpt", weights_only=True)
    for name, weight in states[1]["model"].items():
        torch.testing.assert_close(states[2]["model"][name], weight, rtol=1e-4, atol=1e-6)
    # Adam forgives a gradient of the wrong size; its mean of the gradients does not.
    for number, moments in states[1]["optimizer"]["state"].items():
        other = states[2]["optimizer"]["state"][number]["exp_avg"]
        torch.testing.assert_close(other, moments["exp_avg"], rtol=1e-3, atol=1e-6)
    # 8 images in batches of 4: two steps of the optimizer in each of 4 epochs.
    assert states[2]["optimizer"]["state"][0]["step"] == 8
    assert [row["steps"] for row in table(tmp_path / "run2")] == ["4"] * 4


def test_the_best_epoch_is_kept_and_only_some_are_validated(folder_dataset, tmp_path):
    result = train_tiny(
        folder_dataset, tmp_path / "run", training__epochs=5, training__validate_every=2
    )
    rows = table(tmp_path / "run")
    assert [row["miou"] != "" for row in rows] == [False, True, False, True, True]
    scores = {int(row["epoch"]): float(row["ema_miou"]) for row in rows if row["miou"]}
    assert result.best_epoch == max(scores, key=scores.get)


def test_runs_without_averaging_have_no_averaged_scores(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "run", training__ema_decay=0.0)
    assert {row["ema_miou"] for row in table(tmp_path / "run")} == {""}
    state = torch.load(tmp_path / "run/last.ckpt", weights_only=True)
    assert state["ema"] is None


def test_a_run_folder_explains_itself(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "run")
    files = {path.name for path in Path(tmp_path / "run").iterdir()}
    assert files - {"events"} == {
        *("config.yaml", "environment.json", "split.json", "epochs.csv", "timing.csv"),
        *("best.safetensors", "last.ckpt", "last.previous.ckpt", "history"),
    }
    environment = json.loads((tmp_path / "run/environment.json").read_text())
    assert torch.__version__.startswith(environment["packages"]["torch"])
    assert len((tmp_path / "run/timing.csv").read_text().splitlines()) == 5
