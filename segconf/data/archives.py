"""Archives of data sets on disk: partial downloads, checksums, and safe unpacking of zips."""

import errno
import hashlib
import json
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from segconf.errors import DataError

OnBytes = Callable[[int, int | None], None]  # bytes done, bytes in total
_Entry = tuple[zipfile.ZipInfo, PurePosixPath]  # an entry and its place below the target

BLOCK = 1 << 20
ISIC_URL = "https://isic-challenge-data.s3.amazonaws.com/2017"
ISIC_PAGE, TAR = "https://challenge.isic-archive.com/data/#2017", ".tar.gz"
# What zipfile raises for broken, truncated or exotic archives.
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class Archive:
    """One zip of a data set; `name` is also the folder that its files end up in.

    `size_hint` is its rough size, used where the server does not tell; people find it on `page`.
    """

    name: str
    url: str
    md5: str
    size_hint: int
    page: str = ISIC_PAGE
    suffix: str = ".zip"

    @property
    def file_name(self) -> str:
        """Of the archive on the disk."""
        return self.name + self.suffix

    @property
    def by_hand(self) -> str:
        """How to get it without this program; a folder follows."""
        return f"Or get it by hand ({self.page}) and put it, as {self.file_name}, into"


@dataclass(frozen=True, slots=True)
class ZipLimits:
    """What one archive may hold at most; far above the real ones (about 4000 files, 6.2 GB)."""

    entries: int = 20_000
    total_bytes: int = 20 * 10**9
    ratio: int = 100


DEFAULT_LIMITS = ZipLimits()


def _isic(name: str, md5: str, size_hint: int) -> Archive:
    return Archive(f"ISIC-2017_{name}", f"{ISIC_URL}/ISIC-2017_{name}.zip", md5, size_hint)


ISIC_ARCHIVES = (
    _isic("Training_Data", "a14a7e622c67a358797ae59abb8a0b0c", 6_200_000_000),
    _isic("Training_Part1_GroundTruth", "77fdbeb6fbec4139937224416b250f4c", 10_000_000),
    _isic("Validation_Data", "8d6419d942112f709894c0d82f6c9038", 900_000_000),
    _isic("Validation_Part1_GroundTruth", "64d3e68fa2deeb8a5e89aa8dec2efd44", 1_000_000),
    _isic("Test_v2_Data", "5f6a0b5e1f2972bd1f5ea02680489f09", 5_800_000_000),
    _isic("Test_v2_Part1_GroundTruth", "b1742de6bd257faca3b2b21a4aa3b781", 6_000_000),
)


class PartFile:
    """Bytes of an archive that have arrived, their MD5, and the version they belong to.

    The note beside them (ETag and length) stays until the archive is unpacked: it tells a zip
    that was fetched here, and may be removed, from one that somebody put there.
    """

    def __init__(self, zip_path: Path) -> None:
        self.zip_path = zip_path
        self.path = zip_path.with_name(f"{zip_path.name}.part")
        self.note = zip_path.with_name(f"{zip_path.name}.part.json")
        self._forget()

    def _forget(self) -> None:
        self.size = 0
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.etag: str | None = None
        self.total: int | None = None

    def load(self, on_bytes: OnBytes) -> None:
        """Hash what an earlier run has left."""
        if not self.path.exists():
            return
        self.md5 = md5_of(self.path, on_bytes)
        self.size = self.path.stat().st_size
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            self.etag, self.total = note["etag"], note["total"]
        except (OSError, ValueError, LookupError, TypeError):
            self.etag = self.total = None  # version unknown: the MD5 decides in the end

    def restart(self) -> None:
        """Forget and remove all bytes."""
        self.path.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)
        self._forget()

    def describe(self, etag: str | None, total: int | None) -> None:
        """Remember which version of the file the bytes belong to."""
        self.etag, self.total = etag, total
        with disk_errors(self.note):
            self.note.write_text(json.dumps({"etag": etag, "total": total}), encoding="utf-8")

    def append(self, block: bytes) -> None:
        """Add bytes at the end."""
        with disk_errors(self.path), self.path.open("ab") as file:
            file.write(block)
        self.md5.update(block)
        self.size += len(block)

    def finish(self) -> None:
        """Turn the part into the zip, durably."""
        with disk_errors(self.zip_path):
            with self.path.open("rb+") as file:
                os.fsync(file.fileno())
            self.path.replace(self.zip_path)

    def is_ours(self) -> bool:
        """Whether the zip was fetched here, rather than put there by hand."""
        return self.note.exists() and not self.path.exists()


def md5_of(path: Path, on_bytes: OnBytes) -> "hashlib._Hash":
    """MD5 of a file, to be continued; it finds damage and is no protection against attackers."""
    md5 = hashlib.md5(usedforsecurity=False)
    done = 0
    with disk_errors(path), path.open("rb") as file:
        total = path.stat().st_size
        while block := file.read(BLOCK):
            md5.update(block)
            done += len(block)
            on_bytes(done, total)
    return md5


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a disk's refusal into plain words: which file, why, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{path}: the disk is full. Free some space and run the same command again: "
                "it continues with what has arrived."
            ) from error
        raise DataError(
            f"{path}: cannot be read or written ({error.strerror or error}). "
            "Check the permissions, or choose another folder."
        ) from error


def readable_size(count: int) -> str:
    """Bytes in decimal units, as file managers show them: 1500000 is `1.5 MB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def extract_archive(
    zip_path: Path,
    target: Path,
    *,
    limits: ZipLimits = DEFAULT_LIMITS,
    on_bytes: OnBytes | None = None,
) -> None:
    """Unpack a zip into the folder `target`, which appears only when it is complete.

    Files are written below `<target>.unpacking`, which is renamed at the end and removed on any
    failure or interruption. Entries lie in a folder with the name of `target`, or at the top of
    the zip; resource files of macOS are left out; anything else is refused before a byte is
    written. An existing `target` must be empty. Links are neither followed nor created.

    Raises:
        DataError: The archive is damaged, unsafe, or does not fit on the disk.
    """
    unpacking = target.with_name(f"{target.name}.unpacking")
    try:
        with disk_errors(target), zipfile.ZipFile(zip_path) as bundle:
            entries = _checked_entries(bundle, zip_path, limits, top=target.name)
            if unpacking.exists():
                shutil.rmtree(unpacking)
            unpacking.mkdir(parents=True)
            _write_entries(bundle, entries, unpacking, on_bytes)
            if target.is_dir():
                target.rmdir()
            unpacking.rename(target)
    except _DAMAGED as error:
        raise DataError(
            f"{zip_path}: the archive is damaged ({error}). "
            "Delete it and run the same command again to fetch it anew."
        ) from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)


def _checked_entries(
    bundle: zipfile.ZipFile, zip_path: Path, limits: ZipLimits, *, top: str
) -> list[_Entry]:
    """Files of the archive with their places; all unsafe entries are reported together."""
    entries: list[_Entry] = []
    problems: list[str] = []
    seen: set[str] = set()
    for info in bundle.infolist():
        path = PurePosixPath(info.orig_filename)
        if path.parts[:1] == ("__MACOSX",) or path.name == ".DS_Store":
            continue
        place = path.relative_to(top) if path.parts[:1] == (top,) else path
        problem = _entry_problem(info, path, top)
        # Names that differ only in case are one file on some disks.
        if problem is None and str(place).casefold() in seen:
            problem = "occurs twice"
        seen.add(str(place).casefold())
        if problem is not None:
            problems.append(f"{info.orig_filename!r} {problem}")
        elif not info.is_dir():
            entries.append((info, place))
    problems += _size_problems(entries, zip_path.stat().st_size, limits)
    if not problems and not entries:
        problems.append("it holds no files")
    if problems:
        raise DataError(
            f"{zip_path}: not unpacked, {len(problems)} problem(s): {'; '.join(problems[:10])}. "
            "Nothing was written. If the archive comes from a trusted place, unpack it by hand "
            f"into {zip_path.with_name(top)}."
        )
    return entries


def _entry_problem(info: zipfile.ZipInfo, path: PurePosixPath, top: str) -> str | None:
    """Why an entry is refused, or None."""
    if path.is_absolute() or ".." in path.parts or any(c in info.orig_filename for c in "\\:\0"):
        return "points outside the archive's folder"
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device, not a file"
    if info.flag_bits & 0x1:
        return "is encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed with an unexpected method"
    in_top = path.parts[:1] == (top,)
    loose = len(path.parts) == 1 and not info.is_dir() and not in_top
    if loose or (in_top and (len(path.parts) > 1 or info.is_dir())):
        return None
    return f"is not in the folder {top}"


def _size_problems(entries: list[_Entry], zip_size: int, limits: ZipLimits) -> list[str]:
    """Signs of a zip bomb in the declared sizes."""
    total = sum(info.file_size for info, _ in entries)
    problems = []
    if len(entries) > limits.entries:
        problems.append(f"it holds {len(entries)} files (limit {limits.entries})")
    if total > limits.total_bytes:
        limit = readable_size(limits.total_bytes)
        problems.append(f"it unpacks to {readable_size(total)} (limit {limit})")
    if total > limits.ratio * zip_size:
        problems.append(f"it grows {total / zip_size:.0f} times (limit {limits.ratio})")
    return problems


def _write_entries(
    bundle: zipfile.ZipFile, entries: list[_Entry], folder: Path, on_bytes: OnBytes | None
) -> None:
    """Write every file, counting real bytes: the declared sizes were checked, but may be lies."""
    total = sum(info.file_size for info, _ in entries)
    done = 0
    for info, place in entries:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        end = done + info.file_size
        with bundle.open(info) as source, path.open("xb") as file:
            while done <= end and (block := source.read(BLOCK)):
                file.write(block[: max(end - done, 0)])
                done += len(block)
                if on_bytes is not None:
                    on_bytes(min(done, end), total)
            file.flush()
            os.fsync(file.fileno())
        if done != end:
            raise zipfile.BadZipFile(f"{info.orig_filename!r} does not have its declared size")
