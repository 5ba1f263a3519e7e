"""A run that was interrupted anywhere, anyhow, ends like one that was not."""

import csv
import json
import logging
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from segconf.errors import TrainingError
from segconf.history import predictions
from segconf.history.storage import zeros
from segconf.runs.epochs import read_progress
from segconf.runs.run_folder import newest_run
from segconf.training.history_maps import history_maps
from tests.training_runs import Interrupter, contents, differences, train_tiny

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def reference(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "reference")
    return contents(tmp_path / "reference")


def test_a_second_run_differs_in_nothing_but_another_seed_in_much(
    folder_dataset, tmp_path, reference
):
    train_tiny(folder_dataset, tmp_path / "again")
    train_tiny(folder_dataset, tmp_path / "workers", training__workers=2)
    train_tiny(folder_dataset, tmp_path / "seed", training__seed=1)

    assert differences(reference, contents(tmp_path / "again")) == []
    assert differences(reference, contents(tmp_path / "workers")) == []
    changed = differences(reference, contents(tmp_path / "seed"))
    assert {"epochs.csv", "best first.weight", "history/agreements-0004.npy"} <= set(changed)


@pytest.mark.parametrize(("epoch", "step"), [(0, 1), (1, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_interrupted_in_the_middle_of_an_epoch(
    folder_dataset, tmp_path, reference, epoch, step, error
):
    run = tmp_path / "run"
    with pytest.raises(error):
        train_tiny(folder_dataset, run, listener=Interrupter(epoch, step, error))
    train_tiny(folder_dataset, run, resume=True)

    assert differences(reference, contents(run)) == []


def test_sweeps_and_a_late_ranking_are_continued_as_well(folder_dataset, tmp_path):
    changes = {
        "training__history": "sweep",
        "training__history_start": 1,
        "training__ranking_warmup": 2,
        "training__unaugmented_bn_mode": "eval",
    }
    train_tiny(folder_dataset, tmp_path / "reference", **changes)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, tmp_path / "run", listener=Interrupter(2, 1), **changes)
    train_tiny(folder_dataset, tmp_path / "run", resume=True, **changes)

    assert differences(contents(tmp_path / "reference"), contents(tmp_path / "run")) == []


@pytest.mark.parametrize(
    ("optimizer", "schedule"), [("adam", "cosine"), ("adamw", "constant"), ("sgd", "steps")]
)
def test_every_optimizer_goes_on_where_it_was(folder_dataset, tmp_path, optimizer, schedule):
    changes = {
        "training__optimizer": optimizer,
        "training__schedule": schedule,
        "training__weight_decay": 0.01,
    }
    train_tiny(folder_dataset, tmp_path / "reference", **changes)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, tmp_path / "run", listener=Interrupter(2, 1), **changes)
    train_tiny(folder_dataset, tmp_path / "run", resume=True, **changes)

    expected = contents(tmp_path / "reference")
    assert differences(expected, contents(tmp_path / "run")) == []
    rate = {"cosine": 0.03 * (1 + math.cos(math.pi * 7 / 8)) / 2, "steps": 0.0003}
    assert expected["last.optimizer.param_groups.0.lr"] == pytest.approx(rate.get(schedule, 0.03))


def test_a_history_on_the_disk_is_the_same(folder_dataset, tmp_path, reference, monkeypatch):
    mapped = []

    def recording(shape, dtype, scratch):
        mapped.append(scratch)
        return zeros(shape, dtype, scratch)

    monkeypatch.setattr(predictions, "zeros", recording)
    run, changes = tmp_path / "run", {"training__history_storage": "disk"}
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(2, 1), **changes)
    train_tiny(folder_dataset, run, resume=True, **changes)

    assert differences(reference, contents(run)) == []
    assert set(mapped) == {run / "history"}


@pytest.mark.parametrize(
    ("every", "epoch", "saved"), [(2, 1, None), (2, 2, 2), (2, 3, 2), (3, 3, 3)]
)
def test_fewer_checkpoints_change_nothing_but_where_a_run_goes_on(
    folder_dataset, tmp_path, reference, every, epoch, saved
):
    class Epochs(Interrupter):
        seen = ()

        def on_epoch(self, summary):
            self.seen += (summary.epoch,)

    run, changes = tmp_path / "run", {"training__checkpoint_every": every}
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(epoch, 1), **changes)
    assert (run / "last.ckpt").exists() == (run / "epochs.csv").exists() == (saved is not None)
    resumed = Epochs(9, 1)
    train_tiny(folder_dataset, run, resume=True, listener=resumed, **changes)

    assert resumed.seen == tuple(range(saved or 0, 4))
    again = contents(run)
    # Of the history, older generations are kept beside the last: those of other epochs here.
    older = {name for name in {*reference, *again} if name.endswith(("-0002.npy", "-0003.npy"))}
    assert set(differences(reference, again)) <= older


def test_more_epochs_than_planned(folder_dataset, tmp_path, reference):
    run = tmp_path / "run"
    train_tiny(folder_dataset, run, training__epochs=2)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, resume=True, listener=Interrupter(2, 1))
    assert "epochs: 4" in (run / "config.yaml").read_text()
    train_tiny(folder_dataset, run, resume=True)

    assert differences(reference, contents(run)) == []


PATIENT = {"training__epochs": 40, "training__patience": 2, "training__checkpoint_every": 3}


def test_a_run_that_converges_ends_the_same_after_an_interruption(folder_dataset, tmp_path):
    result = train_tiny(folder_dataset, tmp_path / "reference", **PATIENT)
    epochs = len(result.summaries)
    stalled = [summary.stalled for summary in result.summaries]
    assert 3 <= epochs < 40
    assert (stalled[-2:], max(stalled[:-1])) == ([1, 2], 1)
    rows = list(csv.DictReader((tmp_path / "reference/epochs.csv").read_text().splitlines()))
    assert [int(row["stalled"]) for row in rows] == stalled
    (progress,) = read_progress(tmp_path / "reference")
    best = max(range(epochs), key=lambda number: result.summaries[number].ema_scores.miou)
    assert (progress.epochs, progress.best_epoch) == (epochs, best + 1)
    assert newest_run(tmp_path) == tmp_path / "reference"

    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(epochs - 1, 2), **PATIENT)
    assert newest_run(tmp_path) == tmp_path / "reference"
    train_tiny(folder_dataset, run, resume=True, **PATIENT)
    reference = contents(tmp_path / "reference")
    assert differences(reference, contents(run)) == []
    # Finished: neither the same nor more epochs add one.
    longer = PATIENT | {"training__epochs": 60}
    assert len(train_tiny(folder_dataset, run, resume=True, **PATIENT).summaries) == epochs
    assert len(train_tiny(folder_dataset, run, resume=True, **longer).summaries) == epochs


def test_a_run_of_a_fixed_length_continues_until_it_converges(folder_dataset, tmp_path):
    whole = train_tiny(folder_dataset, tmp_path / "reference", **PATIENT)
    run, fixed = tmp_path / "run", PATIENT | {"training__patience": None}
    train_tiny(folder_dataset, run, **fixed | {"training__epochs": len(whole.summaries) - 1})
    again = train_tiny(folder_dataset, run, resume=True, **PATIENT)
    assert [one.ema_scores for one in again.summaries] == [
        one.ema_scores for one in whole.summaries
    ]
    assert again.summaries[-1].stalled == 2
    assert "patience: 2" in (run / "config.yaml").read_text()
    # More patience goes on where less had ended.
    longer = PATIENT | {"training__patience": 3, "training__epochs": 60}
    more = train_tiny(folder_dataset, run, resume=True, **longer)
    assert len(more.summaries) > len(whole.summaries)


def test_a_finished_run_is_left_as_it_is(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "run")
    # Killed after the last checkpoint, before the table: the line must not be lost.
    before = contents(tmp_path / "run")
    lines = (tmp_path / "run/epochs.csv").read_text().splitlines(keepends=True)
    (tmp_path / "run/epochs.csv").write_text("".join(lines[:-1]))

    result = train_tiny(folder_dataset, tmp_path / "run", resume=True)

    assert len(result.summaries) == 4
    assert differences(before, contents(tmp_path / "run")) == []


def damage_by_truncation(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def damage_by_garbage(path):
    path.write_bytes(np.random.default_rng(0).bytes(5000))


def damage_by_one_bit(path):
    content = bytearray(path.read_bytes())
    state = torch.load(path, weights_only=True)
    weights = state["model"]["norm.running_mean"].numpy().tobytes()
    content[content.index(weights) + 5] ^= 4
    path.write_bytes(content)


def damage_by_removal(path):
    path.unlink()


@pytest.mark.parametrize(
    "damage", [damage_by_truncation, damage_by_garbage, damage_by_one_bit, damage_by_removal]
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    folder_dataset, tmp_path, reference, caplog, damage
):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(3, 1))
    damage(run / "last.ckpt")
    previous = (run / "last.previous.ckpt").read_bytes()
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, resume=True, listener=Interrupter(2, 1))

    assert "last.ckpt" in caplog.text
    assert "continuing from last.previous.ckpt after epoch 2" in caplog.text
    # The good checkpoint has taken the place of the bad one: the next one cannot push it out.
    assert (run / "last.ckpt").read_bytes() == previous
    train_tiny(folder_dataset, run, resume=True)
    assert differences(reference, contents(run)) == []


def test_a_damaged_history_falls_back_as_well(folder_dataset, tmp_path, reference, caplog):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(3, 1))
    array = run / "history/agreements-0003.npy"
    array.write_bytes(array.read_bytes()[:-1] + b"\x07")
    train_tiny(folder_dataset, run, resume=True)

    assert "after epoch 2" in caplog.text
    assert differences(reference, contents(run)) == []


def test_nothing_is_restarted_silently_when_both_checkpoints_are_damaged(folder_dataset, tmp_path):
    run = tmp_path / "run"
    train_tiny(folder_dataset, run)
    for name in ("last.ckpt", "last.previous.ckpt"):
        damage_by_truncation(run / name)
    with pytest.raises(TrainingError, match=r"no checkpoint to continue from .*last\.ckpt.*last"):
        train_tiny(folder_dataset, run, resume=True, training__epochs=5)
    for name in ("last.ckpt", "last.previous.ckpt"):
        (run / name).unlink()
    with pytest.raises(TrainingError, match="no checkpoint to continue from"):
        train_tiny(folder_dataset, run, resume=True, training__epochs=5)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"training__learning_rate": 0.02}, "training.learning_rate was 0.03, now 0.02"),
        ({"training__epochs": 3}, "training.epochs was 4, now 3"),
        ({"loss__consistency_weight": 1.0}, "loss.consistency_weight was 0.15, now 1.0"),
        ({"data__labeled": 5}, "labeled images: 0 gone, 1 new, such as case_"),
    ],
)
def test_other_settings_are_refused_by_name(folder_dataset, tmp_path, changes, named):
    run = tmp_path / "run"
    train_tiny(folder_dataset, run)
    before = contents(run)
    with pytest.raises(TrainingError) as refusal:
        train_tiny(folder_dataset, run, resume=True, **changes)
    assert named in str(refusal.value)
    assert differences(before, contents(run)) == []


def test_other_data_is_refused_by_name(folder_dataset, tmp_path):
    run = tmp_path / "run"
    train_tiny(folder_dataset, run)
    image = folder_dataset / "images/case_003.png"
    content = image.read_bytes()
    image.write_bytes((folder_dataset / "images/case_004.png").read_bytes())
    with pytest.raises(TrainingError, match="the training images have other pixels"):
        train_tiny(folder_dataset, run, resume=True, training__epochs=5)
    image.write_bytes(content)
    (folder_dataset / "val/images/case_100.png").unlink()
    (folder_dataset / "val/masks/case_100.png").unlink()
    with pytest.raises(TrainingError, match="validation images: 1 gone, 0 new, such as val/case_1"):
        train_tiny(folder_dataset, run, resume=True, training__epochs=5)


def test_masks_exchanged_for_ones_of_equal_size_and_time_are_noticed(folder_dataset, tmp_path):
    masks = {folder_dataset / "masks", folder_dataset / "val/masks"}
    for file in [path for folder in masks for path in folder.iterdir()]:
        Image.open(file).save(file, compress_level=0)  # so that every mask has the same size
    run = tmp_path / "run"
    train_tiny(folder_dataset, run)
    known = json.loads((run / "split.json").read_text())
    for case, kind in ((known["labeled"][0], "training masks"), ("case_100", "validation masks")):
        (file,) = (path for folder in masks for path in folder.glob(f"{case}.png"))
        before, state = file.read_bytes(), file.stat()
        Image.fromarray(255 - np.asarray(Image.open(file))).save(file, compress_level=0)
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert file.stat().st_size == state.st_size
        with pytest.raises(TrainingError, match=f"the {kind} have other pixels") as refusal:
            train_tiny(folder_dataset, run, resume=True, training__epochs=5)
        assert str(refusal.value).count("other pixels") == 1
        file.write_bytes(before)
    train_tiny(folder_dataset, run, resume=True, training__epochs=5)


def test_ids_that_were_edited_do_not_shift_the_history(folder_dataset, tmp_path):
    run = tmp_path / "run"
    train_tiny(folder_dataset, run)
    known = json.loads((run / "split.json").read_text())
    assert (known["unit"], known["labels"]) == ("images", 4)
    known["unlabeled"].append(known["labeled"].pop())
    (run / "split.json").write_text(json.dumps(known))
    with pytest.raises(
        TrainingError, match=r"split\.json: the ids were changed after the run began"
    ):
        train_tiny(folder_dataset, run, resume=True, training__epochs=5)
    with pytest.raises(TrainingError, match="the ids were changed"):
        history_maps(run)


def test_a_data_set_may_move(folder_dataset, tmp_path, reference):
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, run, listener=Interrupter(1, 1))
    moved = folder_dataset.rename(tmp_path / "elsewhere")
    train_tiny(moved, run, resume=True)
    assert differences(reference, contents(run)) == []


def test_a_run_before_its_configuration_is_not_a_run(folder_dataset, tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(TrainingError, match=r"not a run folder \(config.yaml, split.json missing"):
        train_tiny(folder_dataset, tmp_path / "run", resume=True)


KILLER = """
    import os, random, signal, sys, time
    from pathlib import Path
    from tests.training_runs import Slow, train_tiny

    dataset, run, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    moments = random.Random(seed)
    kills = 0
    for attempt in range(5):
        child = os.fork()  # nothing has been computed yet, so there are no threads to lose
        if child == 0:
            listener = Slow() if attempt < 4 else None
            train_tiny(dataset, run, resume=(run / "split.json").exists(), listener=listener)
            os._exit(0)
        if attempt < 4:
            patience = time.monotonic() + 60
            while not (run / "split.json").exists() and time.monotonic() < patience:
                time.sleep(0.005)
            time.sleep(moments.uniform(0.0, 0.35))
            os.kill(child, signal.SIGKILL)
        kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print("killed", kills)
"""


def test_killed_again_and_again_at_random_moments(folder_dataset, tmp_path, reference):
    run = tmp_path / "run"
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLER), folder_dataset, run, "3"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert int(finished.stdout.split()[-1]) >= 2
    assert differences(reference, contents(run)) == []
    assert list(run.glob(".*")) == []
