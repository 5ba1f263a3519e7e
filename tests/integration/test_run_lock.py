"""Processes that change one run at the same time: one works, the others are told so."""

import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from segconf.calibration.calibrate import calibrate
from segconf.locks import LOCK, LockedError, locked
from segconf.training.epoch import TrainingListener
from tests.training_runs import contents, differences, train_tiny, use_network

EPOCHS = {"training__epochs": 4}
REFUSED = 7
PATIENCE = 120


class _Paused(TrainingListener):
    """Stops a training where it holds the run and has not begun its next epoch."""

    def __init__(self, begun, may_go):
        self.begun, self.may_go = begun, may_go

    def on_start(self, folder, epoch, epochs):  # noqa: ARG002
        self.begun.set()
        assert self.may_go.wait(PATIENCE)


def _resume(data, run, begun=None, may_go=None):
    listener = None if begun is None else _Paused(begun, may_go)
    try:
        train_tiny(data, run, resume=True, listener=listener, **EPOCHS)
    except LockedError:
        sys.exit(REFUSED)


def _calibrate(_data, run):
    use_network(pytest.MonkeyPatch())
    try:
        calibrate(run, device="cpu")
    except LockedError:
        sys.exit(REFUSED)


OTHERS = (_resume, _calibrate)


@pytest.fixture(scope="module")
def processes():
    """Real ones, which share nothing but the disk."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.integration.test_run_lock"])
    return context


def test_of_two_that_resume_a_run_one_does_and_changes_all_that_it_would_alone(
    processes, folder_dataset, tmp_path
):
    train_tiny(folder_dataset, tmp_path / "alone", **EPOCHS)
    run = tmp_path / "run"
    train_tiny(folder_dataset, run, training__epochs=2)
    begun, may_go = processes.Event(), processes.Event()
    first = processes.Process(target=_resume, args=(folder_dataset, run, begun, may_go))
    others = [processes.Process(target=work, args=(folder_dataset, run)) for work in OTHERS]
    first.start()
    assert begun.wait(PATIENCE)
    for other in others:
        other.start()
    for other in others:
        other.join(PATIENCE)
    may_go.set()
    first.join(PATIENCE)

    assert [other.exitcode for other in others] == [REFUSED, REFUSED]
    assert first.exitcode == 0
    assert differences(contents(tmp_path / "alone"), contents(run)) == []
    assert not (run / LOCK).exists()


def test_a_run_is_calibrated_by_one_process_at_a_time(folder_dataset, tmp_path, monkeypatch):
    use_network(monkeypatch)
    run = tmp_path / "run"
    train_tiny(folder_dataset, run, calibrate=True)  # within the training, which holds the lock
    before = (run / "calibration.json").read_bytes()
    with locked(run, wait=False), pytest.raises(LockedError, match="trains or calibrates it"):
        # The lock of this thread is not that of a training that calls it.
        _in_another_thread(lambda: calibrate(run, device="cpu"))
    calibrate(run, device="cpu")
    assert (run / "calibration.json").read_bytes() == before


def _in_another_thread(work):
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()
