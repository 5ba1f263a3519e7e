"""Files that are either complete or absent."""

import hashlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name in the same folder that becomes `path` when the block succeeds.

    The content is on the disk before it gets its name, so neither a crash nor a power cut can leave
    a half-written file under the final name.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


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
    """Write a text file completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def file_hash(path: Path) -> str:
    """SHA-256 of a file; of a folder, that of the names and hashes of all files in it."""
    if path.is_dir():
        total = hashlib.sha256()
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            total.update(f"{file_hash(file)} {file.relative_to(path).as_posix()}\n".encode())
        return total.hexdigest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
