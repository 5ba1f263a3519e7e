"""Rotated and resized pictures: every pixel where a viewer shows it, close to a full decode."""

import numpy as np
import PIL.Image
import PIL.ImageFile
import pytest

from segconf.images.io import read_header, read_image

GREY = np.array([[0, 50, 100], [150, 200, 255]], np.uint8)
COLOUR = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14  # (H, W, C)


def save(path, array, **options):
    PIL.Image.fromarray(array).save(path, **options)
    return path


def exif(orientation):
    tags = PIL.Image.Exif()
    tags[0x0112] = orientation
    return tags


def upright(array, orientation):
    """What a viewer shows, from the definition: where row 0 and column 0 of the file lie."""
    return {
        1: lambda a: a,
        2: np.fliplr,
        3: lambda a: np.rot90(a, 2),
        4: np.flipud,
        5: lambda a: np.rot90(np.fliplr(a), 1),
        6: lambda a: np.rot90(a, -1),
        7: lambda a: np.rot90(np.fliplr(a), -1),
        8: lambda a: np.rot90(a, 1),
    }[orientation](array)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_exif_orientation(tmp_path, orientation, suffix):
    path = save(tmp_path / f"a.{suffix}", COLOUR, exif=exif(orientation))
    expected = upright(COLOUR, orientation)
    np.testing.assert_array_equal(read_image(path).pixels, expected.transpose(2, 0, 1))
    assert read_header(path).size == expected.shape[:2]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_of_jpegs_that_are_decoded_at_reduced_scale(tmp_path, orientation):
    # Four flat quarters of 96 x 160: any mistake of axes shows as a wrong quarter.
    quarters = np.array([[20, 80], [140, 220]], np.uint8)
    stored = quarters.repeat(48, axis=0).repeat(80, axis=1)
    path = save(tmp_path / "a.jpg", stored, exif=exif(orientation), quality=95)
    expected = upright(quarters, orientation)
    size = upright(stored, orientation).shape
    assert read_header(path).size == size
    small = read_image(path, channels=1, size=(size[0] // 8, size[1] // 8)).pixels[0].astype(int)
    rows, columns = small.shape
    corners = small[:: rows - 1, :: columns - 1]
    assert np.abs(corners - expected).max() <= 1


@pytest.mark.parametrize("orientation", [0, 9])
def test_undefined_orientation_is_none(tmp_path, orientation):
    path = save(tmp_path / "a.png", GREY, exif=exif(orientation))
    np.testing.assert_array_equal(read_image(path, channels=1).pixels[0], GREY)


def test_broken_exif_is_no_orientation_and_no_warning(tmp_path):
    path = save(tmp_path / "a.jpg", np.full((8, 8), 99, np.uint8), exif=b"Exif\0\0II*\0\xff\xff")
    assert read_image(path, channels=1).pixels.shape == (1, 8, 8)


def smooth_scene(height, width):
    rows, columns = np.mgrid[0:height, 0:width]
    bumps = 128 + 60 * np.sin(rows / 23) + 50 * np.cos(columns / 31 + rows / 57)
    return np.dstack([bumps, bumps[::-1], 255 - bumps]).clip(0, 255).astype(np.uint8)


def test_shrinking_averages_blocks(tmp_path):
    path = save(tmp_path / "a.png", np.array([[0, 255] * 8] * 16, np.uint8))
    # Stripes one pixel wide average to grey; picking pixels would leave stripes.
    read = read_image(path, channels=1, size=(4, 4)).pixels
    assert read.shape == (1, 4, 4)
    assert np.abs(read[0, :, 1:-1].astype(int) - 127).max() <= 1


@pytest.mark.parametrize("shape", [(643, 1003), (768, 1024)])
def test_reduced_jpeg_decoding_is_close_to_decoding_everything(tmp_path, shape):
    path = save(tmp_path / "a.jpg", smooth_scene(*shape), quality=95)
    full = PIL.Image.open(path).resize((128, 96), PIL.Image.Resampling.BILINEAR)
    reduced = read_image(path, size=(96, 128)).pixels.transpose(1, 2, 0)
    difference = np.abs(reduced.astype(int) - np.asarray(full))
    assert difference.mean() < 0.5
    assert difference.max() <= 4


@pytest.fixture
def decoded_sizes(monkeypatch):
    """Width and height at which files are decoded, in order, repetitions left out."""
    sizes = {}
    load = PIL.ImageFile.ImageFile.load

    def spy(self):
        sizes[self.size] = None
        return load(self)

    monkeypatch.setattr(PIL.ImageFile.ImageFile, "load", spy)
    return sizes


def test_reduced_decoding_leaves_a_quarter_more_than_the_target(tmp_path, decoded_sizes):
    path = save(tmp_path / "a.jpg", smooth_scene(400, 640))
    read_image(path, size=(80, 128))  # 1.25 * 128 = 160, a quarter of 640
    read_image(path, size=(81, 128))  # 1.25 * 81 > 100
    read_image(path)
    assert list(decoded_sizes) == [(160, 100), (320, 200), (640, 400)]


def test_cmyk_is_always_decoded_in_full(tmp_path, decoded_sizes):
    PIL.Image.new("CMYK", (640, 400)).save(tmp_path / "a.jpg")
    decoded_sizes.clear()
    assert read_image(tmp_path / "a.jpg", size=(50, 80)).pixels.shape == (3, 50, 80)
    assert list(decoded_sizes) == [(640, 400)]


def test_enlarging_and_same_size(tmp_path):
    path = save(tmp_path / "a.png", GREY)
    assert read_image(path, size=(8, 9)).pixels.shape == (3, 8, 9)
    np.testing.assert_array_equal(read_image(path, channels=1, size=(2, 3)).pixels[0], GREY)
