"""Masks: every honest encoding gives class indices, everything else an error that names it."""

import nibabel
import numpy as np
import PIL.Image
import pytest

from segconf.errors import DataError
from segconf.images.io import read_header, read_image
from segconf.images.masks import read_mask
from segconf.images.resizing import resize_mask
from segconf.images.types import Header

BINARY = np.array([[0, 1, 1], [0, 0, 1]], np.uint8)


def save(path, array, **options):
    PIL.Image.fromarray(array).save(path, **options)
    return path


def save_palette(path, indices, colours):
    picture = PIL.Image.fromarray(np.asarray(indices, np.uint8))
    picture.putpalette(np.asarray(colours, np.uint8).ravel().tolist())
    picture.save(path)
    return path


def header(height, width):
    """What a picture of that size says about itself."""
    return Header(size=(height, width), slices=1, channels=1)


def save_nifti(path, voxels):
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([-1.0, -1.0, 1.0, 1.0])), path)
    return path


def exif(orientation):
    tags = PIL.Image.Exif()
    tags[0x0112] = orientation
    return tags


@pytest.mark.parametrize("scale", [1, 255])
@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_two_classes_as_0_1_or_0_255(tmp_path, scale, suffix):
    mask = read_mask(save(tmp_path / f"a.{suffix}", BINARY * np.uint8(scale)))
    np.testing.assert_array_equal(mask, BINARY)
    assert mask.dtype == np.uint8


@pytest.mark.parametrize(("value", "expected"), [(0, 0), (1, 1), (255, 1)])
def test_constant_masks(tmp_path, value, expected):
    path = save(tmp_path / "a.png", np.full((2, 2), value, np.uint8))
    assert read_mask(path).tolist() == [[expected] * 2] * 2


@pytest.mark.parametrize("scale", [1, 255, 65535])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits(tmp_path, scale, suffix):
    path = save(tmp_path / f"a.{suffix}", BINARY.astype(np.uint16) * np.uint16(scale))
    np.testing.assert_array_equal(read_mask(path), BINARY)


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_whole_numbers_of_32_bits(tmp_path, kind):
    labels = np.array([[0, 1], [2, 3]], kind)
    np.testing.assert_array_equal(read_mask(save(tmp_path / "a.tif", labels), classes=4), labels)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif"])
def test_one_bit(tmp_path, suffix):
    PIL.Image.fromarray(BINARY * np.uint8(255)).convert("1").save(tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(read_mask(tmp_path / f"a.{suffix}"), BINARY)
    np.testing.assert_array_equal(read_mask(tmp_path / f"a.{suffix}", classes=3), BINARY)


def test_palette_indices_are_the_classes(tmp_path):
    colours = [(200, 0, 0), (0, 200, 0), (0, 0, 200)]
    path = save_palette(tmp_path / "a.png", [[0, 1, 2]], colours)
    assert read_mask(path, classes=3).tolist() == [[0, 1, 2]]


def test_palette_of_256_greys_may_hold_0_and_255(tmp_path):
    greys = np.arange(256).repeat(3)
    path = save_palette(tmp_path / "a.png", BINARY * 255, greys)
    np.testing.assert_array_equal(read_mask(path), BINARY)


def test_palette_that_draws_class_0_white_contradicts_itself(tmp_path):
    black, white = (0, 0, 0), (255, 255, 255)
    good = save_palette(tmp_path / "good.png", BINARY, [black, white])
    np.testing.assert_array_equal(read_mask(good), BINARY)
    bad = save_palette(tmp_path / "bad.png", BINARY, [white, black])
    with pytest.raises(DataError, match=r"bad\.png: the palette draws class 0 white.*grey PNG"):
        read_mask(bad)


def test_grey_stored_as_colour(tmp_path):
    grey = np.dstack([BINARY * np.uint8(255)] * 3)
    opaque = np.full((2, 3), 255, np.uint8)
    np.testing.assert_array_equal(read_mask(save(tmp_path / "a.png", grey)), BINARY)
    path = save(tmp_path / "b.png", np.dstack([grey, opaque]))
    np.testing.assert_array_equal(read_mask(path), BINARY)


def test_colours_are_refused(tmp_path):
    colours = np.zeros((2, 3, 3), np.uint8)
    colours[0, 0] = (255, 0, 0)
    with pytest.raises(DataError, match=r"a\.png: the mask is coloured.*class indices"):
        read_mask(save(tmp_path / "a.png", colours))


@pytest.mark.parametrize("bands", [1, 3])
def test_a_mask_drawn_in_the_alpha_channel_is_not_read_as_empty(tmp_path, bands):
    array = np.dstack([np.zeros((2, 3, bands), np.uint8), BINARY * np.uint8(255)])
    mode = "LA" if bands == 1 else "RGBA"
    PIL.Image.frombytes(mode, (3, 2), array.tobytes()).save(tmp_path / "a.png")
    with pytest.raises(DataError, match="transparency that varies"):
        read_mask(tmp_path / "a.png")


def test_cmyk_is_refused(tmp_path):
    PIL.Image.new("CMYK", (8, 8)).save(tmp_path / "a.jpg")
    with pytest.raises(DataError, match="CMYK pixels"):
        read_mask(tmp_path / "a.jpg")


def test_levels_in_between_are_named_and_never_thresholded(tmp_path):
    path = save(tmp_path / "a.png", np.array([[0, 12, 200, 255]], np.uint8))
    with pytest.raises(DataError, match=r"a\.png: found values 0, 12, 200, 255; .*0 and 255"):
        read_mask(path)
    # Also where the pixel in question does not survive the resizing.
    with pytest.raises(DataError, match="found values"):
        read_mask(path, size=(1, 1))


def test_many_levels_are_counted(tmp_path):
    levels = np.arange(0, 248, 8, dtype=np.uint8)[None]  # 31 of them
    with pytest.raises(DataError, match=r"found 31 values, such as 0, 8, 120, 240; .*threshold"):
        read_mask(save(tmp_path / "a.png", levels))


def test_jpeg_masks(tmp_path):
    flat = save(tmp_path / "flat.jpg", np.full((16, 16), 255, np.uint8))
    assert np.unique(read_mask(flat)).tolist() == [1]
    disc = np.hypot(*(np.mgrid[:32, :32] - 15.5)) < 9
    with pytest.raises(DataError, match=r"disc\.jpg: found \d+ values.*JPEG"):
        read_mask(save(tmp_path / "disc.jpg", disc.astype(np.uint8) * np.uint8(255), quality=60))


@pytest.mark.parametrize("values", [[0, 1, 255], [0, 2], [1, 255], [0, 254]])
@pytest.mark.parametrize("ignore_255", [False, True])
def test_two_classes_and_a_third_value(tmp_path, values, ignore_255):
    path = save(tmp_path / "a.png", np.array([values], np.uint8))
    listing = ", ".join(str(value) for value in values)
    with pytest.raises(DataError, match=f"found values {listing};"):
        read_mask(path, ignore_255=ignore_255)


def test_255_is_the_foreground_of_two_classes_whatever_the_flag(tmp_path):
    path = save(tmp_path / "a.png", BINARY * np.uint8(255))
    np.testing.assert_array_equal(read_mask(path, ignore_255=True), BINARY)


def test_more_classes(tmp_path):
    path = save(tmp_path / "a.png", np.array([[0, 3, 1, 2]], np.uint8))
    assert read_mask(path, classes=4).tolist() == [[0, 3, 1, 2]]
    with pytest.raises(DataError, match=r"found values 0, 1, 2, 3; a mask of 3 classes holds 0 to"):
        read_mask(path, classes=3)


@pytest.mark.parametrize("values", [[0, 1, 2, 255], [0, 255], [255]])
def test_ignore_must_be_configured(tmp_path, values):
    path = save(tmp_path / "a.png", np.array([values], np.uint8))
    assert read_mask(path, classes=3, ignore_255=True).tolist() == [values]
    with pytest.raises(DataError, match=r"255; .*data\.ignore_255"):
        read_mask(path, classes=3)


@pytest.mark.parametrize("classes", [1, 256])
def test_impossible_number_of_classes(tmp_path, classes):
    with pytest.raises(ValueError, match="between 2 and 255"):
        read_mask(tmp_path / "a.png", classes=classes)


def test_size_is_checked_against_the_image_before_resizing(tmp_path):
    path = save(tmp_path / "a.png", BINARY)
    assert read_mask(path, image=header(2, 3), size=(4, 4)).shape == (4, 4)
    with pytest.raises(DataError, match=r"a\.png: the mask is 2 x 3, its image 4 x 6") as caught:
        read_mask(path, image=header(4, 6), size=(4, 6))
    assert "EXIF" not in str(caught.value)
    with pytest.raises(DataError, match=r"2 x 3, its image 3 x 2 .*EXIF orientation"):
        read_mask(path, image=header(3, 2))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_rotated_mask_agrees_with_its_rotated_image(tmp_path, orientation):
    picture = save(tmp_path / "i.png", BINARY * np.uint8(200), exif=exif(orientation))
    mask = save(tmp_path / "m.png", BINARY * np.uint8(255), exif=exif(orientation))
    image = read_image(picture, channels=1)
    read = read_mask(mask, image=read_header(picture))
    np.testing.assert_array_equal(read * 200, image.pixels[0])


def nearest_by_hand(mask, size):
    """The source pixel that contains the centre of each new pixel."""
    result = np.empty(size, mask.dtype)
    for row in range(size[0]):
        for column in range(size[1]):
            y = (row + 0.5) * mask.shape[0] / size[0]
            x = (column + 0.5) * mask.shape[1] / size[1]
            result[row, column] = mask[int(y), int(x)]
    return result


@pytest.mark.parametrize("size", [(7, 5), (23, 31), (1, 1), (40, 9), (11, 13)])
def test_nearest_resize_matches_a_slow_loop(tmp_path, size):
    mask = np.random.default_rng(1).integers(0, 5, (23, 31), dtype=np.uint8)
    read = read_mask(save(tmp_path / "a.png", mask), classes=5, size=size)
    np.testing.assert_array_equal(read, nearest_by_hand(mask, size))
    np.testing.assert_array_equal(resize_mask(mask, size), nearest_by_hand(mask, size))


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.float32, np.float64])
def test_nifti_labels(tmp_path, kind):
    voxels = np.array([[0, 1], [2, 0], [1, 1]], kind)  # (columns, rows)
    path = save_nifti(tmp_path / "a.nii.gz", voxels)
    assert read_mask(path, classes=3).tolist() == [[0, 2, 1], [1, 0, 1]]


def test_nifti_slices_and_volume(tmp_path):
    voxels = np.zeros((3, 2, 4), np.uint8)
    voxels[1, 0, 2] = 255
    path = save_nifti(tmp_path / "a.nii", voxels)
    assert read_mask(path, slice_index=2, image=header(2, 3)).tolist() == [[0, 1, 0], [0, 0, 0]]
    assert read_mask(path, slice_index=1).max() == 0
    assert read_mask(path).shape == (4, 2, 3)
    assert read_mask(path, size=(4, 6)).sum() == 4
    with pytest.raises(DataError, match=r"slice 4 was asked for, the file has 4.*same number"):
        read_mask(path, slice_index=4)
    with pytest.raises(DataError, match="the mask is 2 x 3, its image 5 x 3"):
        read_mask(path, slice_index=0, image=header(5, 3))


@pytest.mark.parametrize("bad", [0.5, -1, np.nan, np.inf])
def test_nifti_values_that_are_no_classes(tmp_path, bad):
    path = save_nifti(tmp_path / "a.nii", np.array([[0, bad]], np.float32))
    with pytest.raises(DataError, match=rf"a\.nii: found values .*{bad:g}"):
        read_mask(path)


def test_nifti_mask_with_channels_is_refused(tmp_path):
    path = save_nifti(tmp_path / "a.nii", np.zeros((2, 2, 1, 3), np.uint8))
    with pytest.raises(DataError, match="the mask has 3 channels"):
        read_mask(path)


def test_a_mask_as_large_as_its_image_passes_the_default_ceiling(tmp_path, monkeypatch):
    path = save(tmp_path / "a.png", BINARY)
    monkeypatch.setattr("segconf.images.masks.DEFAULT_MAX_PIXELS", 5)
    with pytest.raises(DataError, match="2 x 3, more than the ceiling of 5 pixels"):
        read_mask(path)
    np.testing.assert_array_equal(read_mask(path, image=header(2, 3)), BINARY)
