"""Downloads that end in a clear error: wrong bytes, busy servers, no space, proxies."""

import errno
import hashlib
import shutil
from pathlib import Path

import pytest

from segconf.data import archives, download
from segconf.data.archives import Archive
from segconf.data.download import download_archives, plan_download
from segconf.errors import DataError, FileError
from tests.archive_server import (
    FILES,
    HALF,
    NAME,
    ZIP,
    Reply,
    Server,
    Usage,
    archive_at,
    assert_complete,
    contents,
    get,
    interrupt_at,
    names,
)


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
        download_archives(
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
    with pytest.raises(FileError, match="A file is in the place of a folder"):
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
