"""Downloads that break off, go on, and end complete."""

import itertools

import pytest

from segconf.data import download
from segconf.data.archives import ISIC_ARCHIVES
from segconf.data.download import DownloadProgress, plan_download
from segconf.errors import DataError
from tests.archive_server import (
    FILES,
    HALF,
    NAME,
    ZIP,
    Reply,
    Seen,
    archive_at,
    assert_complete,
    contents,
    get,
    interrupt_at,
    names,
    noise,
)


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
    monkeypatch.setattr(download, "TIMEOUT", 1.0)
    server.replies = [Reply(cut=10_000, pause=3.0)]
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
