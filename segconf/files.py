"""The door to the disk: regular files are read, with a limit; what is written is whole or absent.

Reading raises `OSError` or `ValueError`, and whoever reads says what the file was meant to be
(`segconf.config.records`, `segconf.csv_tables`, `segconf.arrays`, `segconf.images`). Writing raises
`FileError`, which a user can understand as it is.
"""

import errno
import hashlib
import os
import platform
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TextIO

from segconf.errors import FileError

MOST_BYTES = 256_000_000
"""Text that segconf reads as a whole, such as a table of a million rows: more is a mistake."""
LEFTOVER_AGE = 24 * 3600
"""Seconds after which an unfinished file is taken for one that nobody is writing any more."""
_PART = ".part"
_MACHINE = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
"""Several machines may write into one folder, and know nothing of each other's processes."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def check_regular(path: Path) -> None:
    """Refuse what is not a file: reading a named pipe or a device may wait for ever.

    Raises:
        OSError: there is nothing, a link without an end, or something that is no regular file.
    """
    _refuse_others(path.stat().st_mode, path)


def is_regular(path: Path) -> bool:
    """Whether `path` is a file that can be read; False for whatever cannot even be looked at."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading, without waiting for anything else.

    Raises:
        OSError: as `check_regular`, or there is no permission to read it.
    """
    check_regular(path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        _refuse_others(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _refuse_others(mode: int, path: Path) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, f"{kind}, not a file", str(path))


def read_bytes(path: Path, *, limit: int = MOST_BYTES) -> bytes:
    """The content of a file of at most `limit` bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is larger.
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"larger than {limit} bytes")
    return content


def read_text(path: Path, *, limit: int = MOST_BYTES) -> str:
    """The content of a UTF-8 file, with or without a byte order mark; see `read_bytes`."""
    return read_bytes(path, limit=limit).decode("utf-8-sig")


def described(error: Exception) -> str:
    """Why a file could not be read, on one line."""
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    words = error.strerror if isinstance(error, OSError) else None
    return " ".join((words or str(error) or type(error).__name__).split())


def inside(folder: Path, name: str) -> Path:
    """The path of a name that was read from a file, below a folder and nowhere else.

    Raises:
        ValueError: the name is empty, absolute, leads out of the folder, or is none at all.
    """
    parts = PurePosixPath(name).parts
    windows = PureWindowsPath(name)
    if not parts or "\0" in name or ".." in (*parts, *windows.parts) or windows.anchor:
        raise ValueError(f"{name!r} does not name a file below {folder}")
    return folder.joinpath(*parts)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name in the same folder that becomes `path` when the block succeeds.

    The content is on the disk before it gets its name, so neither a crash nor a power cut can leave
    a half-written file under the final name.

    Raises:
        FileError: the file cannot be written.
    """
    temporary = path.with_name(f".{_MACHINE}-{os.getpid()}-{uuid.uuid4().hex[:12]}{_PART}")
    try:
        try:
            yield temporary
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> FileError:
    """The message for a file or folder that the disk refuses."""
    ways_out = {
        errno.ENOSPC: "Free some space.",
        errno.EDQUOT: "Free some space.",
        errno.ENAMETOOLONG: "Choose a shorter name.",
        errno.EISDIR: "Choose another name, or remove the folder.",
        errno.ENOTDIR: "A file is in the place of a folder. Choose another folder.",
        errno.EEXIST: "A file is in the place of a folder. Choose another folder.",
        errno.ENOENT: "Make its folder first.",
    }
    default = "Choose a folder that you may write to and that has space."
    return FileError(path, described(error), ways_out.get(error.errno or 0, default))


def sync_folder(folder: Path) -> None:
    """Make renames and removals durable; Windows has no handle on a folder and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all; its folder is made if it is missing."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; its folder is made if it is missing.

    Raises:
        FileError: it cannot be written.
    """
    make_folder(path.parent)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def text_writer(path: Path) -> Iterator[TextIO]:
    """A text file that is written piece by piece and gets its name when the block succeeds.

    Raises:
        FileError: it cannot be written.
    """
    make_folder(path.parent)
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="replace", newline="") as file,
    ):
        yield file


def make_folder(path: Path) -> None:
    """Make a folder and those above it.

    Raises:
        FileError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def remove_leftovers(folder: Path, *, age: float = LEFTOVER_AGE) -> None:
    """Remove what ended processes left half written in a folder, and all that is older than `age`.

    Whoever holds the lock of a folder knows that nobody else is writing, and gives 0.
    """
    for path in folder.glob(f".*{_PART}*"):
        with suppress(OSError):
            if _is_orphan(path.name) or time.time() - path.stat().st_mtime >= age:
                path.unlink(missing_ok=True)


def _is_orphan(name: str) -> bool:
    """Whether the process that was writing a file has ended, as far as this machine knows."""
    machine, _, rest = name.removeprefix(".").partition("-")
    number = rest.partition("-")[0]
    if os.name == "nt" or machine != _MACHINE or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def file_hash(path: Path) -> str:
    """SHA-256 of a file; of a folder, that of the names and hashes of all files in it."""
    if path.is_dir():
        total = hashlib.sha256()
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            total.update(f"{file_hash(file)} {file.relative_to(path).as_posix()}\n".encode())
        return total.hexdigest()
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
