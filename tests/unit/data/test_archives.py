"""Hostile and broken zip files."""

import io
import stat
import zipfile

import pytest

from segconf.data import archives
from segconf.data.archives import ZipLimits, extract_archive
from segconf.errors import DataError
from tests.archive_server import (
    FILES,
    HALF,
    NAME,
    ZIP,
    Reply,
    archive_at,
    contents,
    get,
    names,
    noise,
    zipped,
)


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
