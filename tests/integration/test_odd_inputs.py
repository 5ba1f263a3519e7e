"""Inputs that are no pictures, or oddly called: each is an error of its own, the job goes on."""

import csv
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.images.io import read_image
from segconf.inference.sources import find_images
from tests.conftest import write_folder
from tests.tiny_models import disc, write_checkpoint, write_picture

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
LONG = "x" * 251 + ".png"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("run") / "best.safetensors")


def write_oddities(folder):
    """Eight things that cannot be predicted."""
    os.mkfifo(folder / "pipe.png")
    os.mkfifo(folder / "pipe.nii.gz")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(".", os.O_RDONLY)
        os.chdir(folder)  # the path of a socket is short
        try:
            server.bind("socket.png")
        finally:
            os.fchdir(here)
            os.close(here)
    (folder / "broken.png").symlink_to(folder / "gone.png")
    (folder / "circle.png").symlink_to(folder / "circle.png")
    (folder / "zero.png").symlink_to("/dev/zero")
    write_picture(Path(os.fsdecode(os.fsencode(folder) + b"/odd\xff.png")), disc(40, 40, seed=1))
    (folder / "empty.png").write_bytes(b"")


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "Bilder mit Ümläuten"
    for number, name in enumerate(["a.png", "A.jpg", "ä b.png", "sub.png/c.png", LONG, "=1+1.png"]):
        write_picture(folder / name, disc(40, 48, seed=number))
    (folder / "ring").symlink_to(folder)
    return folder


def rows(folder):
    with (folder / "cases.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_without_a_readable_image_leads_to_no_page(segconf, checkpoint, tmp_path):
    broken = tmp_path / "images" / "a.png"
    broken.parent.mkdir()
    broken.write_text("not a picture")
    out = tmp_path / "maps"
    code, text, err = segconf("predict", broken.parent, "--out", out, "--checkpoint", checkpoint)
    assert code == 3
    assert text.strip() == "No image was predicted."
    assert "1 image could not be read" in err


def test_what_cannot_be_read_is_named_and_the_rest_is_predicted(
    segconf, images, checkpoint, tmp_path
):
    write_oddities(images)
    out = tmp_path / "maps"
    code, _, err = segconf("predict", images, "--out", out, "--checkpoint", checkpoint)
    assert code == 3
    assert "8 images could not be read" in err
    found = {row["file"].removeprefix("'"): row for row in rows(out)}
    good = {"a.png", "A.jpg", "ä b.png", "sub.png/c.png", LONG, "=1+1.png"}
    assert {file for file, row in found.items() if not row["error"]} == good
    assert "a named pipe, not a file" in found["pipe.png"]["error"]
    assert "a named pipe, not a file" in found["pipe.nii.gz"]["error"]
    assert "a socket, not a file" in found["socket.png"]["error"]
    assert "a device, not a file" in found["zero.png"]["error"]
    assert "no such file" in found["broken.png"]["error"]
    assert "symbolic links" in found["circle.png"]["error"]
    assert "not valid UTF-8" in found["odd\ufffd.png"]["error"]
    assert (out / "review.html").is_file()
    for file in good:
        assert (out / "masks" / f"{found[file]['case'].removeprefix(chr(39))}.png").is_file()
    assert found["=1+1.png"]["case"] == "'=1+1"
    assert segconf("review", out)[0] == 0
    code, _, err = segconf("export", out, "--out", tmp_path / "slides")
    assert (code, err) == (0, "")
    assert len(list((tmp_path / "slides").rglob("*.png"))) == 6


def test_a_list_with_a_missing_image_predicts_the_others(segconf, images, checkpoint, tmp_path):
    (tmp_path / "list.txt").write_text(f"{images.name}/a.png\n{images.name}/gone.png\n")
    out = tmp_path / "maps"
    arguments = ("--out", out, "--checkpoint", checkpoint)
    assert segconf("predict", tmp_path / "list.txt", *arguments)[0] == 3
    assert [bool(row["error"]) for row in rows(out)] == [False, True]


def test_a_file_that_is_named_is_predicted_even_if_hidden(segconf, checkpoint, tmp_path):
    write_picture(tmp_path / ".a.png", disc(40, 40, seed=0))
    out = tmp_path / "maps"
    assert segconf("predict", tmp_path / ".a.png", "--out", out, "--checkpoint", checkpoint)[0] == 0
    assert [row["case"] for row in rows(out)] == ["_a"]
    assert (out / "masks/_a.png").is_file()


def test_an_image_that_changed_is_predicted_again(segconf, checkpoint, tmp_path):
    images, out = tmp_path / "images", tmp_path / "maps"
    for number in range(3):
        write_picture(images / f"{number}.png", disc(40, 40, seed=number))
    arguments = ("predict", images, "--out", out, "--checkpoint", checkpoint, "--skip-existing")
    assert segconf(*arguments)[0] == 0
    before = (out / "masks/1.png").stat().st_mtime_ns
    stamp = (images / "1.png").stat()
    write_picture(images / "1.png", disc(40, 40, seed=9))
    os.utime(images / "1.png", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    (out / "masks/.0-leftover.part").write_text("")
    os.utime(out / "masks/.0-leftover.part", (0, 0))
    (out / "review/rows/2.json").write_text("{")
    code, text, _ = segconf(*arguments)
    assert (code, text.partition(";")[0]) == (0, "Predicted 2 images, 1 were there already")
    assert (out / "masks/1.png").stat().st_mtime_ns > before
    assert not list(out.rglob(".*"))


def test_an_earlier_prediction_is_no_input(tmp_path, segconf, checkpoint):
    images = tmp_path / "images"
    write_picture(images / "a.png", disc(40, 40, seed=0))
    for name in ("first", "second"):
        out = tmp_path / name
        assert segconf("predict", images, "--out", out, "--checkpoint", checkpoint)[0] == 0
        assert len(rows(out)) == 1
        out.rename(images / name)


def test_a_data_set_with_odd_files_is_refused_with_each_of_them(tmp_path, segconf):
    root = write_folder(tmp_path / "discs", 6)
    write_oddities(root / "images")
    found = find_cases(str(root), options=FindOptions())
    assert len(found.problems) >= 1  # by name alone
    scratch = ("--set", "model.encoder_weights=none", "--out", tmp_path / "run")
    for command in (("data", root, "--verify"), ("train", root, *scratch)):
        code, _, err = segconf(*command)
        assert code == 2
        assert "problems" in err
        assert "pipe" in err or "valid UTF-8" in err


@pytest.mark.parametrize("name", ["pipe.png", "pipe.nii.gz", "socket.png", "zero.png"])
def test_the_image_reader_waits_for_nothing(tmp_path, name):
    write_oddities(tmp_path)
    line = f"from segconf.images.io import read_image; read_image({str(tmp_path / name)!r})"
    ended = subprocess.run(
        [sys.executable, "-c", line], timeout=100, capture_output=True, text=True, check=False
    )
    assert "DataError" in ended.stderr
    assert "not a file" in ended.stderr


def test_paths_with_spaces_and_umlauts_are_paths(images):
    assert read_image(images / "ä b.png").spatial_shape == (40, 48)
    names = [source.case for source in find_images([images]).items]
    assert len(names) == 6
    assert "ä b" in names
    shutil.rmtree(images)
