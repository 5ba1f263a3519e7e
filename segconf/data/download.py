"""Download of the archives of a data set: resumable, checked, complete or absent."""

import http.client
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from segconf.data.archives import (
    ISIC_ARCHIVES,
    Archive,
    PartFile,
    md5_of,
    readable_size,
)
from segconf.data.tar_archives import unpack
from segconf.errors import DataError
from segconf.locks import locked

Stage = Literal["download", "verify", "extract"]
Report = Callable[[Stage, int, int | None], None]
Sleep = Callable[[float], None]

ATTEMPTS = 5  # failures in a row without PROGRESS new bytes before giving up
PROGRESS = 1 << 20
BACKOFF = 1.0  # seconds; doubled after every further failure
TIMEOUT = 30.0  # seconds without a byte
NETWORK_BLOCK = 1 << 17
UNPACKED_RATIO = 1.05  # JPEG and PNG hardly shrink in a zip


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """How far one archive is; `total` is None while the server has not told."""

    archive: str
    stage: Stage
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class DownloadPlan:
    """What is left to do and the bytes it takes; `estimated` where a server did not tell sizes.

    `needed` is the most that will lie on the disk beyond what is there now, `kept` what remains.
    """

    folder: Path
    archives: tuple[Archive, ...]
    download: int
    needed: int
    kept: int
    free: int
    estimated: bool

    def __str__(self) -> str:
        if not self.archives:
            return f"{self.folder}: all archives are there, nothing to download"
        about = "about " if self.estimated else ""
        return (
            f"{self.folder}: {len(self.archives)} archive(s) to get, "
            f"{about}{readable_size(self.download)} to download; takes about "
            f"{readable_size(self.needed)} of disk while unpacking and about "
            f"{readable_size(self.kept)} afterwards; {readable_size(self.free)} are free"
        )


class _TryAgainError(Exception):
    """A failure that may pass: a dropped connection, a busy server, a file that has changed."""


def download_archives(
    folder: Path,
    *,
    archives: Sequence[Archive] = ISIC_ARCHIVES,
    keep_archives: bool = False,
    on_plan: Callable[[DownloadPlan], None] | None = None,
    on_progress: Callable[[DownloadProgress], None] | None = None,
    sleep: Sleep = time.sleep,
) -> list[Path]:
    """Fetch, check and unpack the archives that are missing in a folder.

    An archive whose folder exists and is not empty is done: remove the folder to get it again. A
    `.zip` found in the folder is used when its MD5 is right. Whatever interrupts the work, bytes
    that have arrived stay in `<name>.zip.part`, and the next call asks only for the missing ones.

    Args:
        folder: Where the archive folders are to lie; created when missing.
        archives: What to get.
        keep_archives: Keep the zips after unpacking. By default those fetched here are removed;
            those put there by hand always stay.
        on_plan: Called once with the expected disk use, before anything is fetched.
        on_progress: Called after every block.
        sleep: Waits between attempts.

    Returns:
        The folders made by this call.

    Raises:
        DataError: No network, a refusing server, wrong bytes, an unsafe zip, or a full disk.
    """
    with locked(folder, wait=False, task="downloads into it"):
        plan = plan_download(folder, archives, keep_archives=keep_archives)
        if on_plan is not None:
            on_plan(plan)
        if plan.free < plan.needed:
            raise DataError(
                f"{folder}: the archives take {readable_size(plan.needed)} (zipped and unpacked), "
                f"{readable_size(plan.free)} are free. Free some space, or choose another disk."
            )
        for archive in plan.archives:
            report = _reporter(archive.name, on_progress)
            part = PartFile(folder / archive.file_name)
            if part.zip_path.exists():
                _check_zip(part.zip_path, archive, report)
            else:
                _obtain(archive, part, report, sleep)
            unpack(archive, part.zip_path, folder / archive.name, partial(report, "extract"))
            if part.is_ours() and not keep_archives:
                part.zip_path.unlink()
            part.restart()
        return [folder / archive.name for archive in plan.archives]


def plan_download(
    folder: Path, archives: Sequence[Archive] = ISIC_ARCHIVES, *, keep_archives: bool = False
) -> DownloadPlan:
    """What `download_archives` would do in an existing folder, and the disk space that it takes."""
    missing = tuple(a for a in archives if not any((folder / a.name).glob("*")))
    sizes = _zip_sizes(folder, missing)
    download = needed = used = 0
    for archive, known_size in zip(missing, sizes, strict=True):
        part = PartFile(folder / archive.file_name)
        size = archive.size_hint if known_size is None else known_size
        found = part.zip_path.exists()
        arrived = part.path.stat().st_size if part.path.exists() else 0
        fetched = 0 if found else max(size - arrived, 0)
        download += fetched
        used += fetched + int(size * UNPACKED_RATIO)
        needed = max(needed, used)
        if not keep_archives and (not found or part.is_ours()):
            used -= size
    free = shutil.disk_usage(folder).free
    return DownloadPlan(folder, missing, download, needed, used, free, estimated=None in sizes)


def _zip_sizes(folder: Path, archives: Sequence[Archive]) -> list[int | None]:
    """Bytes of every zip, from the disk or the server; None where neither tells."""
    sizes: list[int | None] = []
    reachable = True
    for archive in archives:
        zip_path = folder / archive.file_name
        size = zip_path.stat().st_size if zip_path.exists() else None
        if size is None and reachable:
            try:
                with _open(archive.url, {}, method="HEAD") as response:
                    size = _length(response)
            except urllib.error.HTTPError as error:
                error.close()
            except (OSError, http.client.HTTPException):
                reachable = False  # the download will say why; do not wait for every archive
        sizes.append(size)
    return sizes


def _check_zip(zip_path: Path, archive: Archive, report: Report) -> None:
    """Accept a zip that lies in the folder only with the right MD5; never remove it."""
    found = md5_of(zip_path, partial(report, "verify")).hexdigest()
    if found != archive.md5:
        raise DataError(
            f"{zip_path}: not the official archive, or incomplete (MD5 {found}, expected "
            f"{archive.md5}). Delete it and run the same command again to download it."
        )


def _obtain(archive: Archive, part: PartFile, report: Report, sleep: Sleep) -> None:
    """Fetch an archive and check its MD5; wrong bytes are thrown away and fetched once more."""
    part.load(partial(report, "verify"))
    found = part.md5.hexdigest()
    for _ in range(2):
        if found != archive.md5:
            _fetch(archive, part, report, sleep)
            found = part.md5.hexdigest()
        report("verify", part.size, part.size)
        if found == archive.md5:
            part.finish()
            return
        part.restart()
    raise DataError(
        f"{archive.url}: wrong bytes, twice (MD5 {found}, expected {archive.md5}); they were "
        "removed. A proxy or a login page of the network may stand in between: try another "
        f"network. {archive.by_hand} {part.zip_path.parent}."
    )


def _fetch(archive: Archive, part: PartFile, report: Report, sleep: Sleep) -> None:
    """Transfer until all bytes are there; give up after ATTEMPTS failures without progress."""
    failures, farthest = 0, part.size
    while True:
        try:
            return _transfer(archive, part, report)
        except _TryAgainError as problem:
            # Only new ground resets the count, so that even a restarting server ends the loop.
            if part.size >= farthest + PROGRESS:
                farthest, failures = part.size, 0
            failures += 1
            if failures >= ATTEMPTS:
                raise DataError(
                    f"{archive.url}: cannot be fetched ({problem}; {failures} attempts). Check "
                    "the network; behind a proxy, set https_proxy. What has arrived is kept, and "
                    f"the same command continues. {archive.by_hand} {part.zip_path.parent}."
                ) from problem
            sleep(BACKOFF * 2 ** (failures - 1))


def _transfer(archive: Archive, part: PartFile, report: Report) -> None:
    """Ask once for the missing bytes and append what arrives."""
    wanted = {"Range": f"bytes={part.size}-"} if part.size else {}
    if part.size and part.etag:
        wanted["If-Range"] = part.etag
    try:
        with _open(archive.url, wanted) as response:
            _accept(response, part)
            while block := response.read(NETWORK_BLOCK):
                part.append(block)
                report("download", part.size, part.total)
    except urllib.error.HTTPError as error:
        with error:
            _refused(error, archive, part)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise _TryAgainError(str(reason) or type(error).__name__) from error
    if part.total is not None and part.size < part.total:
        raise _TryAgainError(f"the connection ended after {part.size} of {part.total} bytes")


def _accept(response: http.client.HTTPResponse, part: PartFile) -> None:
    """Decide whether the answer continues the part; a whole file starts it anew."""
    tag = response.headers.get("ETag", "W/")
    etag = None if tag.startswith("W/") else tag  # a weak tag does not promise the same bytes
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        total = int(span[2]) if span and span[2] != "*" else part.total
        etag = etag or part.etag
        continues = span is not None and int(span[1]) == part.size
        if not continues or part.etag not in (None, etag) or part.total not in (None, total):
            part.restart()
            raise _TryAgainError("the file on the server has changed")
    else:
        part.restart()
        total = _length(response)
    part.describe(etag, total)


def _refused(error: urllib.error.HTTPError, archive: Archive, part: PartFile) -> None:
    """Sort the answers that are not a file into those that may pass and those that stay."""
    answer = f"the server answers {error.code} {error.reason}"
    if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and part.size:
        part.restart()  # a complete part is known by its MD5 before asking, so this one is wrong
        raise _TryAgainError(answer) from error
    if error.code >= http.HTTPStatus.INTERNAL_SERVER_ERROR or error.code in (408, 429):
        raise _TryAgainError(answer) from error
    raise DataError(
        f"{archive.url}: {answer}. The file may have moved, or a proxy may forbid it. "
        f"{archive.by_hand} {part.zip_path.parent}."
    ) from error


def _open(url: str, headers: dict[str, str], method: str = "GET") -> http.client.HTTPResponse:
    """Answer of the server, through the proxies that the environment names."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url}: archives are fetched by http or https")
    headers = {"User-Agent": "segconf", **headers}
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 - scheme checked
    opener = urllib.request.build_opener()  # urlopen would remember the proxies of its first use
    response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT)
    return response


def _length(response: http.client.HTTPResponse) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _reporter(archive: str, on_progress: Callable[[DownloadProgress], None] | None) -> Report:
    def report(stage: Stage, done: int, total: int | None) -> None:
        if on_progress is not None:
            on_progress(DownloadProgress(archive, stage, done, total))

    return report
