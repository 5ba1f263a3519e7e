"""Downloads from a local server that drops, ignores, lies and changes its mind; hostile zips."""

import errno
import hashlib
import io
import itertools
import random
import re
import shutil
import stat
import threading
import time
import zipfile
from collections import namedtuple
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from segconf.data import archives, download
from segconf.data.archives import ISIC_ARCHIVES, Archive, ZipLimits, extract_archive
from segconf.data.download import DownloadProgress, download_isic, plan_download
from segconf.errors import DataError

NAME = "ISIC-2017_Validation_Data"
Seen = namedtuple("Seen", "method path range if_range sent")
Usage = namedtuple("Usage", "total used free")


def noise(seed, length):
    """Bytes that do not compress, like JPEG."""
    return random.Random(seed).randbytes(length)  # noqa: S311 - not cryptography


FILES = {f"ISIC_{i:07d}.jpg": noise(i, 20_000) for i in range(4)}


def zipped(files, top=f"{NAME}/"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(name if isinstance(name, zipfile.ZipInfo) else top + name, content)
    return buffer.getvalue()


ZIP = zipped(FILES)
HALF = len(ZIP) // 2


@dataclass
class Reply:
    """One answer; `cut` drops the connection early, `shift` misplaces a continuation."""

    body: bytes = ZIP
    status: int = 200
    etag: str | None = '"one"'
    ranges: bool = True
    if_range: bool = True
    shift: int = 0
    pause: float = 0
    cut: int | None = None
    length: bool = True


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        if self.server.head == "drop":
            self.note(0)
            return
        self.send_response(200 if self.server.head == "ok" else 405)
        self.send_header("Content-Length", str(len(ZIP)))
        self.note(0)
        self.end_headers()

    def do_GET(self):
        reply = self.server.replies.pop(0) if self.server.replies else Reply()
        body, status = reply.body, reply.status
        if status != 200:
            body = b"sorry"
        asked = self.headers["Range"] if reply.ranges else None
        same = not reply.if_range or self.headers["If-Range"] in (None, reply.etag)
        if asked and status == 200 and same:
            start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) + reply.shift
            status = 206 if start < len(body) else 416
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
        if status == 416:
            body = b""
        if reply.etag:
            self.send_header("ETag", reply.etag)
        if reply.length:
            self.send_header("Content-Length", str(len(body)))
        sent = body[: reply.cut]
        self.note(len(sent))  # before the client can act on the answer
        self.end_headers()
        try:
            self.wfile.write(sent)
            time.sleep(reply.pause)
        except ConnectionError:
            return  # the client was interrupted

    def note(self, sent):
        fields = (self.command, self.path, self.headers["Range"], self.headers["If-Range"], sent)
        self.server.seen.append(Seen(*fields))

    def log_message(self, *args):
        """Keep the test output clean."""


class Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.head, self.replies, self.seen = "ok", [], []
        self.url = f"http://127.0.0.1:{self.server_port}"

    @property
    def gets(self):
        return [seen for seen in self.seen if seen.method == "GET"]


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _small_and_direct(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(download, "NETWORK_BLOCK", 4096)
    monkeypatch.setattr(download, "TIMEOUT", 5.0)


def archive_at(url, body=ZIP, name=NAME):
    md5 = hashlib.md5(body, usedforsecurity=False).hexdigest()
    return Archive(name, f"{url}/{name}.zip", md5, size_hint=7_000)


def get(folder, source, **options):
    """Download one archive without waiting; `source` is a server or an archive."""
    archive = source if isinstance(source, Archive) else archive_at(source.url)
    return download_isic(folder, archives=[archive], **{"sleep": lambda _: None, **options})


def contents(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def assert_complete(folder):
    """The images are there, and nothing else is: no part, note, zip or temporary folder."""
    assert contents(folder) == {f"{NAME}/{name}": content for name, content in FILES.items()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def interrupt_at(stage, done):
    def on_progress(progress):
        if progress.stage == stage and progress.done >= done:
            raise KeyboardInterrupt

    return on_progress


def test_official_archives():
    assert len({a.md5 for a in ISIC_ARCHIVES}) == 6
    assert {a.url for a in ISIC_ARCHIVES} == {
        f"https://isic-challenge-data.s3.amazonaws.com/2017/ISIC-2017_{split}_{part}.zip"
        for split in ("Training", "Validation", "Test_v2")
        for part in ("Data", "Part1_GroundTruth")
    }
    md5 = {a.name: a.md5 for a in ISIC_ARCHIVES}
    assert md5["ISIC-2017_Test_v2_Data"] == "5f6a0b5e1f2972bd1f5ea02680489f09"
    assert md5["ISIC-2017_Training_Part1_GroundTruth"] == "77fdbeb6fbec4139937224416b250f4c"
    assert sum(a.size_hint for a in ISIC_ARCHIVES) == pytest.approx(12.5e9, rel=0.05)


def test_fetches_checks_and_unpacks(tmp_path, server):
    plans, steps = [], []
    made = get(tmp_path / "new", server, on_plan=plans.append, on_progress=steps.append)
    assert made == [tmp_path / "new" / NAME]
    assert_complete(tmp_path / "new")
    assert plans[0].download == len(ZIP)
    assert not plans[0].estimated
    assert [s for s, _ in itertools.groupby(step.stage for step in steps)] == [
        "download",
        "verify",
        "extract",
    ]
    fetched = [step.done for step in steps if step.stage == "download"]
    assert fetched == sorted(set(fetched))
    assert steps[len(fetched) - 1] == DownloadProgress(NAME, "download", len(ZIP), len(ZIP))
    assert steps[-1] == DownloadProgress(NAME, "extract", 80_000, 80_000)


def test_second_call_has_nothing_to_do(tmp_path, server):
    get(tmp_path, server)
    server.seen.clear()
    plans = []
    assert get(tmp_path, server, on_plan=plans.append) == []
    assert server.seen == []
    assert "nothing to download" in str(plans[0])


def test_archives_are_kept_on_request(tmp_path, server):
    get(tmp_path, server, keep_archives=True)
    assert names(tmp_path) == [NAME, f"{NAME}.zip"]
    assert (tmp_path / f"{NAME}.zip").read_bytes() == ZIP


@pytest.mark.parametrize("abandoned", [[], ["part"], ["part", "part.json"]])
def test_zip_put_there_by_hand_is_used_and_stays(tmp_path, server, abandoned):
    (tmp_path / f"{NAME}.zip").write_bytes(ZIP)
    for suffix in abandoned:
        (tmp_path / f"{NAME}.zip.{suffix}").write_bytes(b"{}")
    get(tmp_path, server)
    assert server.seen == []
    assert names(tmp_path) == [NAME, f"{NAME}.zip"]


def test_wrong_zip_put_there_by_hand_is_refused_and_stays(tmp_path, server):
    (tmp_path / f"{NAME}.zip").write_bytes(ZIP[:-1])
    with pytest.raises(DataError, match=r"Validation_Data\.zip: not the official .*Delete it"):
        get(tmp_path, server)
    assert names(tmp_path) == [f"{NAME}.zip"]


def test_dropped_connection_is_continued(tmp_path, server):
    server.replies = [Reply(cut=HALF), Reply(cut=100)]
    waits = []
    get(tmp_path, server, sleep=waits.append)
    assert_complete(tmp_path)
    assert [seen.range for seen in server.gets] == [
        None,
        f"bytes={HALF}-",
        f"bytes={HALF + 100}-",
    ]
    assert [seen.if_range for seen in server.gets] == [None, '"one"', '"one"']
    assert sum(seen.sent for seen in server.gets) == len(ZIP)
    assert waits == [1.0, 2.0]


def test_silent_server_is_left_and_asked_again(tmp_path, server, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    server.replies = [Reply(cut=10_000, pause=0.6)]
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert [seen.range for seen in server.gets] == [None, "bytes=8192-"]


def test_interrupted_download_asks_only_for_the_missing_bytes(tmp_path, server):
    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, server, on_progress=interrupt_at("download", HALF))
    assert names(tmp_path) == [f"{NAME}.zip.part", f"{NAME}.zip.part.json"]
    arrived = (tmp_path / f"{NAME}.zip.part").read_bytes()
    assert arrived == ZIP[: len(arrived)]
    assert HALF <= len(arrived) < HALF + 4096
    assert plan_download(tmp_path, [archive_at(server.url)]).download == len(ZIP) - len(arrived)

    server.seen.clear()
    get(tmp_path, server)
    assert_complete(tmp_path)
    path = f"/{NAME}.zip"
    expected = Seen("GET", path, f"bytes={len(arrived)}-", '"one"', len(ZIP) - len(arrived))
    assert server.gets == [expected]


def test_interrupted_extraction_leaves_the_whole_zip_and_no_folder(tmp_path, server):
    with pytest.raises(KeyboardInterrupt):
        get(tmp_path, server, on_progress=interrupt_at("extract", 40_000))
    assert names(tmp_path) == [f"{NAME}.zip", f"{NAME}.zip.part.json"]
    server.seen.clear()
    get(tmp_path, server)
    assert server.seen == []
    assert_complete(tmp_path)


def test_leftovers_of_a_killed_extraction_are_cleared(tmp_path, server):
    (tmp_path / f"{NAME}.unpacking").mkdir()
    (tmp_path / f"{NAME}.unpacking" / "half.jpg").write_bytes(b"half")
    (tmp_path / NAME).mkdir()
    get(tmp_path, server)
    assert_complete(tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Reply(ranges=False), id="range-ignored"),
        pytest.param(Reply(etag='"two"'), id="etag-changed"),
    ],
)
def test_whole_file_in_answer_to_a_range_starts_anew(tmp_path, server, answer):
    server.replies = [Reply(noise(9, len(ZIP)), cut=HALF), answer]
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert [seen.sent for seen in server.gets] == [HALF, len(ZIP)]


@pytest.mark.parametrize(
    ("begin", "answer"),
    [
        pytest.param({"etag": None, "body": noise(9, 50)}, Reply(etag=None), id="length"),
        pytest.param({}, Reply(etag='"two"', if_range=False), id="etag-without-if-range"),
        pytest.param({}, Reply(shift=7), id="other-range"),
    ],
)
def test_continuation_of_something_else_starts_anew(tmp_path, server, begin, answer):
    server.replies = [Reply(cut=40, **begin), answer]
    waits = []
    get(tmp_path, server, sleep=waits.append)
    assert_complete(tmp_path)
    assert [seen.range for seen in server.gets] == [None, "bytes=40-", None]
    # Noticed from the headers (a second wait), not from the MD5 of a mixed file.
    assert waits == [1.0, 2.0]


def test_continuation_without_an_etag_is_accepted(tmp_path, server):
    server.replies = [Reply(cut=40), Reply(cut=60, etag=None, if_range=False)]
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert [(seen.range, seen.if_range) for seen in server.gets[1:]] == [
        ("bytes=40-", '"one"'),
        ("bytes=100-", '"one"'),
    ]


def test_weak_etag_is_not_used_to_continue(tmp_path, server):
    server.replies = [Reply(etag='W/"one"', cut=HALF), Reply(etag='W/"two"')]
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert [seen.if_range for seen in server.gets] == [None, None]


@pytest.mark.parametrize("note", [None, "not json", "[]"])
def test_part_without_a_readable_note_is_continued(tmp_path, server, note):
    (tmp_path / f"{NAME}.zip.part").write_bytes(ZIP[:HALF])
    if note is not None:
        (tmp_path / f"{NAME}.zip.part.json").write_text(note)
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert [(seen.range, seen.if_range) for seen in server.gets] == [(f"bytes={HALF}-", None)]


def test_complete_part_is_not_fetched_again(tmp_path, server):
    (tmp_path / f"{NAME}.zip.part").write_bytes(ZIP)
    get(tmp_path, server)
    assert server.gets == []
    assert contents(tmp_path / NAME) == FILES


def test_part_that_is_too_long_starts_anew_after_416(tmp_path, server):
    (tmp_path / f"{NAME}.zip.part").write_bytes(ZIP + b"more")
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert [seen.range for seen in server.gets] == [f"bytes={len(ZIP) + 4}-", None]


def test_wrong_bytes_once_are_fetched_again_from_zero(tmp_path, server):
    server.replies = [Reply(b"x" * len(ZIP))]
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert [seen.range for seen in server.gets] == [None, None]


def test_wrong_bytes_always_are_an_error_and_leave_nothing(tmp_path, server):
    wrong = b"<html>please log in</html>"
    server.replies = [Reply(wrong), Reply(wrong)]
    archive = archive_at(server.url)
    with pytest.raises(DataError, match="wrong bytes, twice") as caught:
        get(tmp_path, archive)
    found = hashlib.md5(wrong, usedforsecurity=False).hexdigest()
    assert all(text in str(caught.value) for text in (archive.url, archive.md5, found))
    assert names(tmp_path) == []
    assert len(server.gets) == 2


@pytest.mark.parametrize("status", [503, 500, 429])
def test_busy_server_is_asked_again(tmp_path, server, status):
    server.replies = [Reply(cut=HALF), Reply(status=status), Reply(status=status)]
    waits = []
    get(tmp_path, server, sleep=waits.append)
    assert_complete(tmp_path)
    assert waits == [1.0, 2.0, 4.0]
    assert server.gets[-1].range == f"bytes={HALF}-"


def test_attempts_are_bounded_and_the_part_stays(tmp_path, server):
    server.replies = [Reply(cut=10) for _ in range(20)]
    waits = []
    with pytest.raises(DataError, match=r"ended after 50 of \d+ bytes; 5 attempts.*https_proxy"):
        get(tmp_path, server, sleep=waits.append)
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert (tmp_path / f"{NAME}.zip.part").read_bytes() == ZIP[:50]


def test_new_ground_resets_the_attempts(tmp_path, server, monkeypatch):
    monkeypatch.setattr(download, "PROGRESS", 1000)
    server.replies = [Reply(cut=1000) for _ in range(20)]
    waits = []
    get(tmp_path, server, sleep=waits.append)
    assert_complete(tmp_path)
    assert waits == [1.0] * 20


def test_file_that_always_changes_ends_in_an_error(tmp_path, server, monkeypatch):
    monkeypatch.setattr(download, "PROGRESS", 1000)
    server.replies = [Reply(cut=1500, etag=f'"{i}"') for i in range(20)]
    with pytest.raises(DataError, match="5 attempts"):
        get(tmp_path, server)
    assert len(server.gets) == 5


@pytest.mark.parametrize("status", [403, 404])
def test_refusal_is_final_and_says_what_to_do(tmp_path, server, status):
    server.replies = [Reply(status=status)]
    with pytest.raises(DataError, match=rf"answers {status} .*by hand.*{tmp_path}"):
        get(tmp_path, server)
    assert len(server.gets) == 1


def test_no_network_mentions_proxies_and_the_way_by_hand(tmp_path):
    with Server() as closed:
        url = closed.url
    with pytest.raises(DataError, match=r"refused; 5 attempts.*https_proxy.*by hand"):
        get(tmp_path, archive_at(url))


@pytest.mark.parametrize("head", ["405", "drop"])
def test_server_without_head_is_planned_from_the_hint(tmp_path, server, head):
    server.head = head
    plans = []
    other = archive_at(server.url, name="ISIC-2017_Test_v2_Data")
    with pytest.raises(KeyboardInterrupt):
        download_isic(
            tmp_path,
            archives=[archive_at(server.url), other],
            on_plan=plans.append,
            on_progress=interrupt_at("download", 1),
        )
    assert plans[0].download == 14_000
    assert plans[0].estimated
    # A server that cannot be reached is not waited for twice.
    assert [seen.method for seen in server.seen].count("HEAD") == (1 if head == "drop" else 2)


def test_server_without_length(tmp_path, server):
    server.replies = [Reply(length=False)]
    steps = []
    get(tmp_path, server, on_progress=steps.append)
    assert_complete(tmp_path)
    assert {step.total for step in steps if step.stage == "download"} == {None}


def test_disk_use_worked_by_hand(tmp_path, server):
    server.head = "405"
    pair = [archive_at(server.url, name=name) for name in ("a", "b")]
    # Each zip has 7000 bytes and unpacks to 7350. With removal the worst moment is the second
    # unpacking: 7350 + 7000 + 7350; without it everything stays.
    plan = plan_download(tmp_path, pair)
    assert (plan.download, plan.needed, plan.kept) == (14_000, 21_700, 14_700)
    # Before a small one of 1000 bytes, the worst moment is the first unpacking: 7000 + 7350.
    small = Archive("c", pair[0].url, pair[0].md5, size_hint=1000)
    assert plan_download(tmp_path, [pair[0], small]).needed == 14_350
    plan = plan_download(tmp_path, pair, keep_archives=True)
    assert (plan.needed, plan.kept) == (28_700, 28_700)
    assert "2 archive(s) to get, about 14.0 kB to download; takes about 28.7 kB" in str(plan)


def test_insufficient_space_is_said_before_the_first_byte(tmp_path, server, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 90_000, 90_000))
    plans = []
    needed = f"{len(ZIP) * (1 + 1.05) / 1000:.1f} kB"
    with pytest.raises(DataError, match=rf"{tmp_path}: .* take {needed} .* 90\.0 kB are free"):
        get(tmp_path, server, on_plan=plans.append)
    assert plans[0].free == 90_000
    assert server.gets == []


def disk_full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_disk_full_while_fetching_keeps_the_part(tmp_path, server, monkeypatch):
    plain_open = Path.open

    def open_on_a_small_disk(path, mode="r", **options):
        full = mode == "ab" and path.exists() and path.stat().st_size >= 3 * 4096
        return disk_full() if full else plain_open(path, mode, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", open_on_a_small_disk)
        with pytest.raises(DataError, match=r"zip\.part: the disk is full\. Free some space"):
            get(tmp_path, server)
    assert len(server.gets) == 1
    get(tmp_path, server)
    assert_complete(tmp_path)
    assert server.gets[1].range == "bytes=12288-"


@pytest.mark.parametrize("by_hand", [False, True])
def test_disk_full_at_the_end_leaves_nothing_half_valid(tmp_path, server, monkeypatch, by_hand):
    if by_hand:
        (tmp_path / f"{NAME}.zip").write_bytes(ZIP)
    with monkeypatch.context() as patch:
        patch.setattr(archives.os, "fsync", disk_full)
        with pytest.raises(DataError, match="disk is full"):
            get(tmp_path, server)
    arrived = [f"{NAME}.zip"] if by_hand else [f"{NAME}.zip.part", f"{NAME}.zip.part.json"]
    assert names(tmp_path) == arrived
    get(tmp_path, server)
    assert contents(tmp_path / NAME) == FILES
    assert len(server.gets) == (0 if by_hand else 1)


def test_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be read or written"):
        get(tmp_path / "file", archive_at("http://127.0.0.1:9"))


def test_proxy_of_the_environment_is_used(tmp_path, server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    get(tmp_path, archive_at("http://archives.invalid"))
    assert_complete(tmp_path)
    assert {seen.path for seen in server.seen} == {f"http://archives.invalid/{NAME}.zip"}


def test_no_proxy_is_honoured(tmp_path, server, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    get(tmp_path, server)
    assert_complete(tmp_path)


@pytest.mark.parametrize("url", ["file:///etc", "ftp://127.0.0.1"])
def test_other_schemes_are_refused(tmp_path, url):
    with pytest.raises(ValueError, match="http or https"):
        get(tmp_path, archive_at(url))


def unpack(tmp_path, body, **options):
    """Unpack from inside a deeper folder, so that an escape would be seen in `tmp_path`."""
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    (folder / "archive.zip").write_bytes(body)
    extract_archive(folder / "archive.zip", folder / NAME, **options)
    return contents(folder / NAME)


def assert_refused(tmp_path, body, message, **options):
    with pytest.raises(DataError, match=message):
        unpack(tmp_path, body, **options)
    assert [p.name for p in sorted(tmp_path.rglob("*"))] == ["one", "two", "archive.zip"]


def raw_entry(name, mode=stat.S_IFREG | 0o644):
    info = zipfile.ZipInfo("placeholder")
    info.filename, info.external_attr = name, mode << 16
    return info


@pytest.mark.parametrize(
    "name",
    [
        "../escaped.jpg",
        f"{NAME}/../../escaped.jpg",
        "/escaped.jpg",
        "C:escaped.jpg",
        "..\\escaped.jpg",
        f"{NAME}/sub\\..\\..\\escaped.jpg",
    ],
)
def test_path_traversal(tmp_path, name):
    assert_refused(tmp_path, zipped({"a.jpg": b"a", raw_entry(name): b"b"}), "points outside")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_and_devices(tmp_path, kind):
    entry = raw_entry(f"{NAME}/link", kind | 0o777)
    assert_refused(tmp_path, zipped({"a.jpg": b"a", entry: b"/etc/passwd"}), "link or a device")


@pytest.mark.parametrize("name", ["Other/a.jpg", NAME, "Other/"])
def test_entries_outside_the_expected_folder(tmp_path, name):
    body = zipped({"a.jpg": b"a", raw_entry(name): b""})
    assert_refused(tmp_path, body, f"{name}' is not in the folder {NAME}")


def test_duplicates_and_all_problems_at_once(tmp_path):
    body = zipped({"a.jpg": b"a", "A.jpg": b"b", "../c.jpg": b"c"})
    assert_refused(
        tmp_path, body, r"2 problem\(s\): .*A.jpg' occurs twice; .*c.jpg' points outside"
    )


def test_empty_archive(tmp_path):
    assert_refused(tmp_path, zipped({}), "holds no files")


def test_unexpected_compression_and_encryption(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2) as bundle:
        bundle.writestr("a.jpg", b"a")
    assert_refused(tmp_path / "bz2", buffer.getvalue(), "unexpected method")
    body = bytearray(zipped({"a.jpg": b"a"}))
    body[body.index(b"PK\1\2") + 8] |= 1
    assert_refused(tmp_path / "encrypted", bytes(body), "is encrypted")


def test_files_at_the_top_folders_and_macos_resources(tmp_path):
    body = zipped({"a.jpg": b"a", "deep/b.jpg": b"b", raw_entry("c.csv"): b"c", "": b""})
    with_junk = {"a.jpg": b"a", raw_entry("__MACOSX/._a.jpg"): b"", ".DS_Store": b""}
    assert unpack(tmp_path / "x", body) == {"a.jpg": b"a", "deep/b.jpg": b"b", "c.csv": b"c"}
    assert unpack(tmp_path / "y", zipped(with_junk)) == {"a.jpg": b"a"}
    assert unpack(tmp_path / "z", zipped(FILES, top="")) == FILES


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (ZipLimits(), r"grows \d{3} times \(limit 100\)"),
        (ZipLimits(ratio=10**6, total_bytes=2_999_999), r"unpacks to 3.0 MB \(limit 3.0 MB\)"),
        (ZipLimits(ratio=10**6, entries=2), r"holds 3 files \(limit 2\)"),
    ],
)
def test_honest_zip_bomb(tmp_path, limits, message):
    body = zipped({f"{i}.jpg": bytes(10**6) for i in range(3)})
    assert_refused(tmp_path, body, message, limits=limits)


def patched_size(body, size):
    """The only entry's declared size replaced, in the local and in the central header."""
    for marker, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        at = body.index(marker) + offset
        body = body[:at] + size.to_bytes(4, "little") + body[at + 4 :]
    return body


@pytest.mark.parametrize("size", [10, 10**6 - 1, 10**6 + 1])
def test_lying_header(tmp_path, size):
    body = patched_size(zipped({"a.jpg": bytes(10**6)}), size)
    assert_refused(tmp_path, body, "damaged", limits=ZipLimits(ratio=10**4))


def test_no_byte_beyond_the_declared_size_is_written(tmp_path, monkeypatch):
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size=-1):
            Endless.given += size
            return bytes(size)

    written = []
    body = zipped({"a.jpg": b"abc"})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: Endless())
    monkeypatch.setattr(
        archives.os, "fsync", lambda number: written.append(archives.os.fstat(number).st_size)
    )
    assert_refused(tmp_path, body, "a.jpg' does not have its declared size")
    assert written == [3]
    assert Endless.given == archives.BLOCK


@pytest.mark.parametrize("length", [10, HALF, len(ZIP) - 1])
def test_truncated_zip_with_the_right_md5(tmp_path, server, length):
    server.replies = [Reply(ZIP[:length])]
    with pytest.raises(DataError, match=rf"{NAME}\.zip: the archive is damaged"):
        get(tmp_path, archive_at(server.url, ZIP[:length]))
    assert NAME not in names(tmp_path)


def test_wrong_checksum_inside_the_zip(tmp_path):
    body = bytearray(zipped({"a.jpg": noise(1, 1000)}))
    body[500] ^= 1
    assert_refused(tmp_path, bytes(body), "damaged")
