"""Unpacking of downloaded archives: zips, and tar files that are checked entry by entry."""

import os
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath

from segconf.data.archives import (
    BLOCK,
    TAR,
    Archive,
    OnBytes,
    disk_errors,
    extract_archive,
    readable_size,
)
from segconf.errors import DataError

MOST_FILES = 1000
MOST_BYTES = 10**9
_DAMAGED = (tarfile.TarError, zlib.error, EOFError, ValueError)


def unpack(archive: Archive, path: Path, target: Path, on_bytes: OnBytes | None = None) -> None:
    """Unpack an archive into the folder `target`, which appears only when it is complete.

    Raises:
        DataError: the archive is damaged, unsafe, or does not fit on the disk.
    """
    if archive.suffix == TAR:
        extract_tar(path, target, on_bytes=on_bytes)
    else:
        extract_archive(path, target, on_bytes=on_bytes)


def extract_tar(path: Path, target: Path, *, on_bytes: OnBytes | None = None) -> None:
    """Unpack a .tar.gz whose files lie in a folder with the name of `target`.

    Files are written below `<target>.unpacking`, which is renamed at the end and removed on any
    failure. Anything but plain files and folders is refused before a byte is written.

    Raises:
        DataError: the archive is damaged, unsafe, or does not fit on the disk.
    """
    unpacking = target.with_name(f"{target.name}.unpacking")
    try:
        with disk_errors(target), tarfile.open(path, "r:gz") as bundle:
            members = _checked(bundle, path, top=target.name)
            if unpacking.exists():
                shutil.rmtree(unpacking)
            unpacking.mkdir(parents=True)
            total, done = sum(member.size for member in members), 0
            for member in members:
                done = _write(bundle, member, unpacking, done)
                if on_bytes is not None:
                    on_bytes(done, total)
            if target.is_dir():
                target.rmdir()
            unpacking.rename(target)
    except _DAMAGED as error:
        raise DataError(
            f"{path}: the archive is damaged ({error}). "
            "Delete it and run the same command again to fetch it anew."
        ) from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)


def _write(bundle: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, done: int) -> int:
    """Write one file, durably; the bytes that are done now."""
    place = folder / PurePosixPath(*PurePosixPath(member.name).parts[1:])
    place.parent.mkdir(parents=True, exist_ok=True)
    source = bundle.extractfile(member)
    if source is None:
        raise tarfile.TarError(f"{member.name!r} has no content")
    with source, place.open("xb") as file:
        while block := source.read(BLOCK):
            file.write(block)
            done += len(block)
        file.flush()
        os.fsync(file.fileno())
    return done


def _checked(bundle: tarfile.TarFile, path: Path, *, top: str) -> list[tarfile.TarInfo]:
    """Files of the archive; all unsafe entries are reported together."""
    problems: list[str] = []
    files: list[tarfile.TarInfo] = []
    for member in bundle:
        parts = PurePosixPath(member.name).parts
        if not (member.isreg() or member.isdir()):
            problems.append(f"{member.name!r} is a link or a device, not a file")
        elif parts[:1] != (top,) or ".." in parts:
            problems.append(f"{member.name!r} is not in the folder {top}")
        elif member.isreg():
            files.append(member)
    total = sum(member.size for member in files)
    if len(files) > MOST_FILES or total > MOST_BYTES:
        problems.append(f"it holds {len(files)} files of {readable_size(total)}, which is too much")
    if not files and not problems:
        problems.append("it holds no files")
    if problems:
        raise DataError(
            f"{path}: not unpacked, {len(problems)} problem(s): {'; '.join(problems[:10])}. "
            "Nothing was written."
        )
    return files
