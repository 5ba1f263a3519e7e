"""Files that cannot be used: one `DataError` with the path, the problem and the way out."""

import os
from pathlib import Path

import nibabel
import numpy as np
import PIL.Image
import PIL.ImageFile
import pytest

from segconf.errors import DataError
from segconf.images.io import read_confidence, read_header, read_image
from segconf.images.masks import read_mask

READERS = pytest.mark.parametrize("read", [read_image, read_mask, read_confidence])
ALL_READERS = pytest.mark.parametrize("read", [read_header, read_image, read_mask, read_confidence])
NAMES = pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.bmp", "a.tif", "a.nii", "a.nii.gz"])


def noise(path):
    generator = np.random.default_rng(0)
    if ".nii" in path.name:
        voxels = generator.integers(0, 200, (40, 30, 4)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), path)
    else:
        PIL.Image.fromarray(generator.integers(0, 256, (64, 96), dtype=np.uint8)).save(path)
    return path


@NAMES
@READERS
@pytest.mark.parametrize("share", [0.3, 0.7, 0.97])
def test_truncated(tmp_path, name, read, share):
    path = noise(tmp_path / name)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(DataError, match=rf"{name}: .*again, or remove it"):
        read(path)


@NAMES
@ALL_READERS
def test_empty(tmp_path, name, read):
    (tmp_path / name).touch()
    with pytest.raises(DataError, match=rf"{name}: the file is empty"):
        read(tmp_path / name)


@NAMES
@ALL_READERS
def test_text_with_the_suffix_of_an_image(tmp_path, name, read):
    (tmp_path / name).write_text("no image at all\n" * 100)
    with pytest.raises(DataError, match=rf"{name}: .*(not a JPEG, PNG|not a readable NIfTI)"):
        read(tmp_path / name)


@NAMES
@ALL_READERS
def test_folder_with_the_suffix_of_an_image(tmp_path, name, read):
    (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=rf"{name}: is a folder"):
        read(tmp_path / name)


@NAMES
@ALL_READERS
def test_missing(tmp_path, name, read):
    with pytest.raises(DataError, match=rf"{name}: no such file"):
        read(tmp_path / name)


@NAMES
@ALL_READERS
def test_no_permission(tmp_path, monkeypatch, name, read):
    path = noise(tmp_path / name)

    def refuse(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(nibabel, "load", refuse)
    with pytest.raises(DataError, match=rf"{name}: permission denied"):
        read(path)


@ALL_READERS
def test_unknown_suffix(tmp_path, read):
    with pytest.raises(DataError, match=r"a\.gif: unknown image format.*\.bmp, .*\.jpeg, .*\.png"):
        read(tmp_path / "a.gif")


@ALL_READERS
def test_several_pages(tmp_path, read):
    pages = [PIL.Image.new("L", (4, 4), level) for level in (0, 1, 2)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(DataError, match=r"a\.tif: the file holds 3 pictures.*NIfTI"):
        read(tmp_path / "a.tif")


def test_damaged_checksum_of_a_png(tmp_path):
    path = noise(tmp_path / "a.png")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.png: the picture is broken"):
        read_image(path)


def test_a_damaged_tag_of_a_tiff_is_no_warning(tmp_path):
    path = tmp_path / "a.tif"
    PIL.Image.new("L", (4, 4), 9).save(path, software="x" * 50)
    content = path.read_bytes()
    tag = content.index(b"\x31\x01\x02\x00")  # tag 305, text
    path.write_bytes(content[: tag + 8] + b"\xff\xff\xff\x00" + content[tag + 12 :])
    assert np.unique(read_image(path).pixels).tolist() == [9]


def test_pillow_is_never_told_to_accept_truncated_files():
    assert PIL.ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_a_slice_of_a_picture_is_a_mistake_of_the_program(tmp_path):
    path = noise(tmp_path / "a.png")
    for read in (read_image, read_mask):
        with pytest.raises(ValueError, match="no slice 2"):
            read(path, slice_index=2)


def test_paths_may_be_strings(tmp_path):
    path = str(noise(tmp_path / "a.png"))
    assert read_header(path).size == (64, 96)
    assert read_image(path).path == Path(path)
