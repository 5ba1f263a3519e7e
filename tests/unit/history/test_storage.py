"""The history after a crash: kill -9 at random moments, and a crash before every single step."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from segconf.history.predictions import PredictionHistory
from segconf.history.storage import committed_epochs
from tests.references.history import SlowHistory

IMAGES, SIZE, LABELED = 5, (6, 6), [1, 3]
EPOCHS = 250

# Imports once, then starts a trainer (a fork) for every line it is sent, and says when it is dead.
WORKER = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[2])
from tests.unit.history.test_storage import keep_training

for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        keep_training(Path(sys.argv[1]))
        os._exit(0)
    print(child, flush=True)
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


def keep_training(run):
    """A trainer without a network: record, commit, write the checkpoint, keeping the one before."""
    epoch, history = resume(run)
    while epoch + 1 < EPOCHS:
        epoch += 1
        record_epoch(history, epoch)
        checksum = history.commit(run / "history", epoch=epoch)
        (run / "new").write_text(json.dumps([epoch, checksum]))
        if (run / "last").exists():
            (run / "last").replace(run / "previous")
        (run / "new").replace(run / "last")


def said_in(epoch):
    rng = np.random.default_rng(epoch)
    return rng.integers(0, 3, (IMAGES, *SIZE))


def present_in(epoch):
    """The order changes, and one image is absent in odd epochs."""
    return np.random.default_rng(epoch).permutation(IMAGES)[: IMAGES - epoch % 2]


def masks():
    return np.random.default_rng(10_000).integers(0, 3, (IMAGES, *SIZE))


def fresh(scratch=None):
    return PredictionHistory(IMAGES, SIZE, labeled=LABELED, epochs=EPOCHS, scratch=scratch)


def record_epoch(history, epoch):
    cases = present_in(epoch)
    for batch in (cases[:3], cases[3:]):
        history.record(
            torch.from_numpy(batch),
            torch.from_numpy(said_in(epoch)[batch]),
            epoch=epoch,
            masks=torch.from_numpy(masks()[batch]),
        )


def read_checkpoint(run):
    for name in ("last", "previous"):
        if (run / name).exists():
            return json.loads((run / name).read_text())
    return None


def resume(run):
    checkpoint = read_checkpoint(run)
    scratch = run / "scratch"
    if checkpoint is None:
        return -1, fresh(scratch)
    epoch, checksum = checkpoint
    return epoch, PredictionHistory.restore(
        run / "history", epoch=epoch, checksum=checksum, scratch=scratch
    )


def assert_state_after(history, epoch):
    """Compare with the slow replay of all epochs up to this one, and with one epoch more."""
    slow = SlowHistory()
    for past in range(epoch + 1):
        slow_record(slow, past)
    assert_equal(history, slow)
    # The last predictions show only in the next comparison.
    record_epoch(history, epoch + 1)
    slow_record(slow, epoch + 1)
    assert_equal(history, slow)


def slow_record(slow, epoch):
    cases = present_in(epoch)
    said = said_in(epoch).reshape(IMAGES, -1)
    slow.record(cases, said[cases], epoch, masks().reshape(IMAGES, -1)[cases])


def assert_equal(history, slow):
    seen = sorted(slow.epochs)
    consistency = history.consistency(torch.tensor(seen)).flatten(1)
    torch.testing.assert_close(consistency, torch.tensor([slow.consistency(c) for c in seen]))
    labeled = [case for case in LABELED if case in seen]
    correctness = history.correctness(torch.tensor(labeled)).flatten(1)
    torch.testing.assert_close(correctness, torch.tensor([slow.correctness(c) for c in labeled]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill -9")
def test_kill_at_random_moments(tmp_path):
    root = str(Path(__file__).resolve().parents[3])
    delays = np.random.default_rng(5).uniform(0.0, 0.05, 10)
    command = [sys.executable, "-c", WORKER, str(tmp_path), root]
    survived = [-1]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        for turn, delay in enumerate(delays):
            worker.stdin.write("go\n")
            worker.stdin.flush()
            child = int(worker.stdout.readline())
            if turn % 2:
                wait_for_epoch(tmp_path / "history", survived[-1] + 2)
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
            assert worker.stdout.readline() == "dead\n"
            survived.append(check_what_survived(tmp_path))
    assert survived == sorted(survived)
    # In every second turn at least one checkpoint was written before the kill.
    assert survived[-1] >= 4


def wait_for_epoch(folder, epoch):
    """Until this epoch is committed, so that the checkpoint of the one before is written."""
    deadline = time.monotonic() + 60
    while max(committed_epochs(folder), default=-1) < epoch:
        assert time.monotonic() < deadline, "the trainer does not move"
        time.sleep(0.002)


def check_what_survived(run):
    """Epoch of the newest checkpoint; its history and that of the one before are exact."""
    checkpoint = read_checkpoint(run)
    if checkpoint is None:
        return -1
    epoch, checksum = checkpoint
    for wanted, proof in ((epoch, checksum), (epoch - 1, None)):
        if wanted >= 0:
            state = PredictionHistory.restore(run / "history", epoch=wanted, checksum=proof)
            assert_state_after(state, wanted)
    return epoch


class Crash(BaseException):
    """The machine stops here."""


def crash_before(step, monkeypatch):
    """Let the disk operations before this one happen; returns the list of those that did."""
    done = []

    def counted(name, operation):
        def wrapper(*arguments, **options):
            if len(done) == step:
                raise Crash
            done.append(name)
            return operation(*arguments, **options)

        return wrapper

    monkeypatch.setattr(os, "fsync", counted("fsync", os.fsync))
    monkeypatch.setattr(Path, "replace", counted("replace", Path.replace))
    monkeypatch.setattr(Path, "unlink", counted("unlink", Path.unlink))
    monkeypatch.setattr(Path, "open", counted("open", Path.open))
    return done


def commit_epochs(folder, first, last):
    history = fresh()
    for epoch in range(last + 1):
        record_epoch(history, epoch)
        if epoch >= first:
            history.commit(folder, epoch=epoch)
    return history


def test_crash_before_every_step_of_a_commit(tmp_path, monkeypatch):
    completed = False
    step = 0
    while not completed:
        folder = tmp_path / str(step)
        history = commit_epochs(folder, 0, 4)
        record_epoch(history, 5)
        with monkeypatch.context() as patch:
            crash_before(step, patch)
            try:
                history.commit(folder, epoch=5)
                completed = True
            except Crash:
                pass
        for epoch in committed_epochs(folder):
            assert_state_after(PredictionHistory.restore(folder, epoch=epoch), epoch)
        assert {3, 4} <= set(committed_epochs(folder))
        # The checkpoint of epoch 5 was never written: the run continues from 4, then 3.
        again = PredictionHistory.restore(folder, epoch=4)
        record_epoch(again, 5)
        again.commit(folder, epoch=5)
        assert committed_epochs(folder) == [3, 4, 5]
        assert len(list(folder.iterdir())) == 3 * (3 + 1), "something was left behind"
        step += 1
    # Three arrays and a marker are each opened, flushed and renamed.
    assert step > 12


def test_crash_while_a_resumed_run_rewrites_an_epoch(tmp_path, monkeypatch):
    completed = False
    step = 0
    while not completed:
        folder = tmp_path / str(step)
        commit_epochs(folder, 2, 5)
        # Checkpoint 5 is corrupt: back to 4, and epoch 5 turns out differently.
        history = PredictionHistory.restore(folder, epoch=4)
        record_epoch(history, 6)
        with monkeypatch.context() as patch:
            crash_before(step, patch)
            try:
                checksum = history.commit(folder, epoch=5)
                completed = True
            except Crash:
                pass
        assert_state_after(PredictionHistory.restore(folder, epoch=4), 4)
        assert_state_after(PredictionHistory.restore(folder, epoch=3), 3)
        # Epoch 5 is old, absent or new, never a mixture: restore checks the sums of all arrays.
        if 5 in committed_epochs(folder):
            PredictionHistory.restore(folder, epoch=5)
        step += 1
    restored = PredictionHistory.restore(folder, epoch=5, checksum=checksum)
    everyone = torch.arange(IMAGES)
    assert torch.equal(restored.consistency(everyone), history.consistency(everyone))


def test_content_reaches_the_disk_before_its_name(tmp_path, monkeypatch):
    history = fresh()
    with monkeypatch.context() as patch:
        done = crash_before(-1, patch)
        history.commit(tmp_path, epoch=0)
    # Each file and then its folder, the marker last: what a reboot leaves is in this order too.
    one_file = ["open", "open", "fsync", "replace", "fsync"]
    assert done == one_file * 4


def test_missing_damaged_and_foreign_generations_are_named(tmp_path):
    history = commit_epochs(tmp_path, 0, 1)
    with pytest.raises(
        FileNotFoundError, match=r"no prediction history of epoch 7 \(found: 0, 1\)"
    ):
        PredictionHistory.restore(tmp_path, epoch=7)
    checksum = history.commit(tmp_path, epoch=2)
    with pytest.raises(ValueError, match="not the prediction history"):
        PredictionHistory.restore(tmp_path, epoch=1, checksum=checksum)
    path = tmp_path / "agreements-0002.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"agreements-0002\.npy: the content is damaged"):
        PredictionHistory.restore(tmp_path, epoch=2)
