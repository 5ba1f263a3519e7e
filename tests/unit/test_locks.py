"""One process at a time, and none that has ended stands in the way."""

import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from segconf import locks
from segconf.locks import LockedError, locked

HOLD = """
import sys
from pathlib import Path
from segconf.locks import locked
with locked(Path(sys.argv[1]), wait=False):
    print("held", flush=True)
    sys.stdin.read()
"""
COUNT = """
import sys
from pathlib import Path
from segconf.locks import locked
counter = Path(sys.argv[1]) / "counter"
for _ in range(20):
    with locked(Path(sys.argv[1]), wait=True):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def start_holder(folder):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "held\n"
    return holder


def test_a_second_process_is_refused_until_the_first_has_finished(tmp_path):
    with start_holder(tmp_path) as holder:
        with (
            pytest.raises(LockedError, match="another process is training here"),
            locked(tmp_path, wait=False, task="is training here"),
        ):
            pass
        holder.stdin.close()
        holder.wait()
        with locked(tmp_path, wait=False):
            pass


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_a_killed_process_leaves_no_lock(tmp_path):
    with start_holder(tmp_path) as holder:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with locked(tmp_path, wait=False):
            pass
    assert list(tmp_path.iterdir()) == []


def test_processes_that_wait_lose_nothing(tmp_path):
    (tmp_path / "counter").write_text("0")
    command = [sys.executable, "-c", COUNT, str(tmp_path)]
    started = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert (tmp_path / "counter").read_text() == "60"


def test_a_lock_is_not_granted_twice_to_one_process(tmp_path):
    with locked(tmp_path, wait=False):
        with pytest.raises(LockedError), locked(tmp_path, wait=False):
            pass
        with pytest.raises(LockedError), locked(tmp_path / ".." / tmp_path.name, wait=False):
            pass
    with locked(tmp_path, wait=False):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_child_does_not_keep_the_lock_of_its_parent(tmp_path):
    """Workers that load data may outlive a training that was killed."""
    context = multiprocessing.get_context("fork")
    release = context.Event()
    with locked(tmp_path, wait=False):
        child = context.Process(target=release.wait)
        child.start()
    try:
        with locked(tmp_path, wait=False):
            pass
    finally:
        release.set()
        child.join()


def test_a_thread_may_go_on_with_the_lock_that_it_holds(tmp_path):
    with locked(tmp_path, wait=False):
        with locked(tmp_path, wait=False, again=True):
            pass
        assert (tmp_path / ".lock").exists()  # the inner block has not let go of it
        refused = []

        def other():
            try:
                with locked(tmp_path, wait=False, again=True):
                    pass
            except LockedError as error:
                refused.append(error)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert len(refused) == 1


def test_windows_locks_a_byte_and_removes_the_file_after_it_is_closed(tmp_path, monkeypatch):
    """The module as Windows would load it, with its library replaced by one that takes notes."""
    done = []
    library = SimpleNamespace(LK_NBLCK=2, locking=lambda *given: done.append(("lock", given[1:])))
    monkeypatch.setitem(sys.modules, "msvcrt", library)
    monkeypatch.setattr(sys, "platform", "win32")
    place = importlib.util.spec_from_file_location("windows_locks", locks.__file__)
    windows = importlib.util.module_from_spec(place)
    place.loader.exec_module(windows)
    monkeypatch.setattr(sys, "platform", "linux")

    def close(handle):
        done.append(("close", (tmp_path / ".lock").exists()))
        os.close(handle)

    flags = {"O_RDWR": os.O_RDWR, "O_CREAT": os.O_CREAT}
    known = {name: getattr(os, name) for name in ("open", "fstat", "path")}
    monkeypatch.setattr(windows, "os", SimpleNamespace(name="nt", close=close, **flags, **known))
    with windows.locked(tmp_path, wait=False):
        assert (tmp_path / ".lock").exists()
    assert done == [("lock", (2, 1)), ("close", True)]
    assert list(tmp_path.iterdir()) == []

    library.locking = lambda *_given: (_ for _ in ()).throw(PermissionError)
    with pytest.raises(windows.LockedError), windows.locked(tmp_path, wait=False):
        pass
