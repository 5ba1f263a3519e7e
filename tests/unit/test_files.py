"""Reading regular files only, writing whole files only, and staying inside a folder."""

import errno
import os
import socket
import threading
from types import SimpleNamespace

import pytest

from segconf import files
from segconf.errors import FileError
from segconf.files import (
    inside,
    is_regular,
    make_folder,
    open_regular,
    read_bytes,
    read_text,
    remove_leftovers,
    replacing,
    sync_folder,
    text_writer,
    write_text,
)

needs_posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")


@pytest.fixture
def oddities(tmp_path):
    """Everything that has a name and is no regular file."""
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(tmp_path)  # the path of a socket is short
        try:
            server.bind("socket.png")
        finally:
            os.fchdir(here)
            os.close(here)
    (tmp_path / "circle.png").symlink_to(tmp_path / "circle.png")
    (tmp_path / "broken.png").symlink_to(tmp_path / "gone.png")
    return [*sorted(tmp_path.iterdir()), tmp_path / "gone.png", tmp_path / ("x" * 300)]


@needs_posix
def test_only_regular_files_are_opened(oddities):
    assert len(oddities) == 7
    for path in [*oddities, oddities[0].parent / "a" / "b", type(oddities[0])("/dev/zero")]:
        assert not is_regular(path)
        with pytest.raises(OSError, match=r".") as refused:
            open_regular(path)
        assert refused.value.filename is not None


@needs_posix
def test_a_link_to_a_file_is_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"content")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert is_regular(tmp_path / "b")
    assert read_bytes(tmp_path / "b") == b"content"


def test_a_large_file_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", limit=5) == b"12345"
    with pytest.raises(ValueError, match="larger than 4 bytes"):
        read_bytes(tmp_path / "a", limit=4)


def test_text_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf\xc3\xa4")
    assert read_text(tmp_path / "a") == "ä"


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../a", "a/../../b", "/etc/passwd", "a\0b"),
        *(r"C:\a", "C:a", r"\\host\a", r"a\..\..\b"),
    ],
)
def test_a_name_from_a_file_never_leaves_its_folder(tmp_path, name):
    with pytest.raises(ValueError, match="below"):
        inside(tmp_path, name)


@pytest.mark.parametrize("name", ["a.png", "a/b.png", "..a/b..", "=1+1", "ä ö.png"])
def test_a_name_below_a_folder_is_a_path(tmp_path, name):
    assert inside(tmp_path, name) == tmp_path / name


@needs_posix
def test_a_failed_write_leaves_the_file_before(tmp_path):
    write_text(tmp_path / "a", "before")

    def broken():
        with replacing(tmp_path / "a") as temporary:
            temporary.write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(FileError, match=r"No space left on device.*Free some space"):
        broken()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "before"


def test_the_longest_names_can_be_written(tmp_path):
    name = "x" * 251 + ".txt"
    write_text(tmp_path / name, "content")
    assert (tmp_path / name).read_text() == "content"
    with pytest.raises(FileError, match="shorter name"):
        write_text(tmp_path / ("x" * 256), "content")


@needs_posix
def test_whatever_the_disk_refuses_is_said_in_words(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for attempt in (
        lambda: make_folder(tmp_path / "file"),
        lambda: make_folder(tmp_path / "file" / "a"),
        lambda: write_text(tmp_path / "folder", "content"),
        lambda: write_text(tmp_path / "file" / "a", "content"),
        lambda: write_text(tmp_path.joinpath(*["x" * 200] * 30), "content"),
    ):
        with pytest.raises(FileError, match=r"cannot be written \(.*\)\. [A-Z]"):
            attempt()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_leftovers_go_and_what_is_being_written_stays(tmp_path):
    old, new, other = (tmp_path / name for name in (".a.part", ".b.part.png", "c.part"))
    for path in (old, new, other):
        path.write_text("")
    os.utime(old, (0, 0))
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.part.png", "c.part"]
    remove_leftovers(tmp_path, age=0)
    assert [path.name for path in tmp_path.iterdir()] == ["c.part"]


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    texts = [str(number) * 100_000 for number in range(8)]
    threads = [threading.Thread(target=write_text, args=(tmp_path / "a", text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a").read_text() in texts


def test_windows_has_no_handle_on_a_folder_and_no_signal_that_only_asks(tmp_path, monkeypatch):
    """Everything but the name of the system is missing here: a call to it would fail."""
    monkeypatch.setattr(files, "os", SimpleNamespace(name="nt"))
    sync_folder(tmp_path)
    (tmp_path / f".{files._MACHINE}-999999999-abc.part").write_text("")
    remove_leftovers(tmp_path)  # the process may be there: only age tells
    assert len(list(tmp_path.iterdir())) == 1
    remove_leftovers(tmp_path, age=0)
    assert list(tmp_path.iterdir()) == []


def test_text_that_is_written_piece_by_piece_is_whole_or_absent(tmp_path):
    path = tmp_path / "new" / "a.csv"
    with text_writer(path) as file:
        file.write("a\n")
        file.writelines(["\u00e4\n", "\ud800\n"])
        assert not path.exists()
    assert path.read_bytes() == "a\n\u00e4\n?\n".encode()
    with pytest.raises(TypeError), text_writer(path) as file:
        file.writelines(["b", None])
    assert [one.name for one in path.parent.iterdir()] == ["a.csv"]
    assert path.read_bytes() == "a\n\u00e4\n?\n".encode()
