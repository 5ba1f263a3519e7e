"""Locks between processes: they end with the process that holds them, however it ends."""

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from segconf.errors import SegconfError
from segconf.files import make_folder, unwritable

LOCK = ".lock"
_PAUSE = 0.02
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}
_HELD: dict[Path, int] = {}  # by threads of this process: the system would grant them again
_GUARD = threading.Lock()


class LockedError(SegconfError):
    """Another process works on the same folder."""


@contextmanager
def locked(
    folder: Path, *, wait: bool, task: str = "is working on it", again: bool = False
) -> Iterator[None]:
    """Hold the lock of a folder for as long as the block lasts; the folder is made if missing.

    The system releases the lock of a process that ends or is killed, so none is ever left behind.
    On a disk without locks the block runs all the same.

    Args:
        folder: what is locked, by the file `.lock` in it, which is gone afterwards.
        wait: for the other process to finish; else it is an error.
        task: what the other process does, for the message.
        again: go on where this thread holds the lock already; else it waits, or is refused.

    Raises:
        LockedError: another process, or another thread of this one, holds the lock.
        FileError: the folder cannot be written.
    """
    is_new = not folder.exists()
    make_folder(folder)
    path = folder.resolve() / LOCK
    if again and _HELD.get(path) == threading.get_ident():
        yield
        return
    while (handle := _acquired(path)) is None:
        if not wait:
            raise LockedError(
                f"{folder}: another process {task}. Wait until it has finished, or stop it."
            )
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        _release(path, handle)
        if is_new:  # and nothing came of it
            with suppress(OSError):
                folder.rmdir()


def _acquired(path: Path) -> int | None:
    """A handle that holds the lock; None while somebody else does."""
    with _GUARD:
        if path in _HELD:
            return None
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if os.name == "nt" and isinstance(error, PermissionError):
                return None  # it is being removed
            raise unwritable(path, error) from error
        # Whoever held it may have removed the file since it was opened.
        if not _try_lock(handle) or not _is_current(path, handle):
            os.close(handle)
            return None
        _HELD[path] = threading.get_ident()
        return handle


def _release(path: Path, handle: int) -> None:
    with _GUARD:
        _HELD.pop(path, None)
        if os.name != "nt":
            with suppress(OSError):
                path.unlink()
        os.close(handle)
        if os.name == "nt":  # a file that is open has no other way
            with suppress(OSError):
                path.unlink()


def _is_current(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except OSError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        # A record lock belongs to the process: those that it starts do not keep it alive.
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in _UNSUPPORTED
        return True
