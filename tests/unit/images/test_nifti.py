"""NIfTI images: which voxel is which pixel, which intensity which grey level, and where it lies."""

import os

import nibabel
import numpy as np
import pytest

from segconf.errors import DataError
from segconf.images.formats import nifti
from segconf.images.io import read_header, read_image

LPS = np.diag([-1.0, -1.0, 1.0, 1.0])
"""Axes to the left, the back and the head, as slices are read: columns, rows, slices."""


def save(path, voxels, affine=None):
    nibabel.save(nibabel.Nifti1Image(voxels, LPS if affine is None else affine), path)
    return path


@pytest.mark.parametrize("suffix", ["nii", "nii.gz", "NII", "NII.GZ"])
def test_columns_are_the_first_voxel_axis_of_a_file_in_reading_order(tmp_path, suffix):
    voxels = np.array([[0, 10], [20, 30], [40, 50]], np.int16)  # 3 columns, 2 rows
    path = save(tmp_path / f"a.{suffix.lower()}", voxels).rename(tmp_path / f"a.{suffix}")
    image = read_image(path, channels=1, window=(0, 255))
    assert image.pixels.tolist() == [[[0, 20, 40], [10, 30, 50]]]
    assert (read_header(path).size, read_header(path).slices) == ((2, 3), 1)


def test_volume_slices_and_channels(tmp_path):
    voxels = np.arange(4 * 3 * 2 * 2, dtype=np.uint8).reshape(4, 3, 2, 2)
    path = save(tmp_path / "a.nii", voxels)
    header = read_header(path)
    assert (header.size, header.slices, header.channels) == ((3, 4), 2, 2)
    volume = read_image(path, channels=2, window=(0, 255)).pixels
    assert volume.shape == (2, 2, 3, 4)
    for i, j, k, c in np.ndindex(voxels.shape):
        assert volume[c, k, j, i] == voxels[i, j, k, c]
    one = read_image(path, channels=2, window=(0, 255), slice_index=1).pixels
    np.testing.assert_array_equal(one, volume[:, 1])


def test_grey_volume_is_repeated_for_three_channels(tmp_path):
    path = save(tmp_path / "a.nii", np.arange(24, dtype=np.uint8).reshape(4, 3, 2))
    pixels = read_image(path, window=(0, 255)).pixels
    assert pixels.shape == (3, 2, 3, 4)
    assert (pixels == pixels[:1]).all()


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 1), (4, 3, 1, 1)])
def test_a_single_slice_is_a_picture(tmp_path, shape):
    path = save(tmp_path / "a.nii", np.arange(12, dtype=np.float32).reshape(shape))
    assert read_image(path, channels=1).pixels.shape == (1, 3, 4)
    whole, first = read_image(path), read_image(path, slice_index=0)
    np.testing.assert_array_equal(whole.pixels, first.pixels)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_that_the_file_does_not_have(tmp_path, channels):
    path = save(tmp_path / "a.nii", np.zeros((4, 3, 1, 2), np.uint8))
    with pytest.raises(DataError, match=f"{channels} channels were asked for, the file has 2"):
        read_image(path, channels=channels)


@pytest.mark.parametrize("shape", [(4,), (2, 2, 2, 2, 2)])
def test_shapes_that_are_no_image(tmp_path, shape):
    path = save(tmp_path / "a.nii", np.zeros(shape, np.uint8))
    with pytest.raises(DataError, match=r"a\.nii: shape \(.*2, 3 or 4 axes"):
        read_header(path)


def test_complex_voxels_are_refused(tmp_path):
    with pytest.raises(DataError, match="complex numbers"):
        read_image(save(tmp_path / "a.nii", np.zeros((2, 2), np.complex64)))


def test_colour_voxels(tmp_path):
    voxels = np.zeros((2, 1), [("R", "u1"), ("G", "u1"), ("B", "u1")])
    voxels[1, 0] = (10, 20, 30)
    path = save(tmp_path / "a.nii", voxels)
    assert read_image(path).pixels.tolist() == [[[0, 10]], [[0, 20]], [[0, 30]]]
    # 0.299 * 10 + 0.587 * 20 + 0.114 * 30 = 18.15
    assert read_image(path, channels=1).pixels.tolist() == [[[0, 18]]]


def test_window(tmp_path):
    voxels = np.array([[-2000, -100, 0, 50, 100, 3000]], np.int16).T
    # (v + 100) / 200 * 255: clipped, 0, 127.5 (to even), 191.25, 255, clipped
    read = read_image(save(tmp_path / "a.nii", voxels), channels=1, window=(-100, 100)).pixels
    assert read.ravel().tolist() == [0, 0, 128, 191, 255, 255]
    with pytest.raises(ValueError, match="low < high"):
        read_image(tmp_path / "a.nii", window=(1, 1))


def test_scale_factors_of_the_header_are_applied(tmp_path):
    file = nibabel.Nifti1Image(np.array([[0, 10, 20]], np.int16), LPS)
    file.header.set_slope_inter(2, -10)
    file.to_filename(tmp_path / "a.nii")
    raw = bytearray((tmp_path / "a.nii").read_bytes())
    stored = np.array([0, 10, 20], "<i2").tobytes()
    (tmp_path / "a.nii").write_bytes(raw[:352] + stored)
    # 2 v - 10: -10, 10, 30 of the window -10..30
    pixels = read_image(tmp_path / "a.nii", channels=1, window=(-10, 30)).pixels
    assert pixels.ravel().tolist() == [0, 128, 255]


def test_default_window_is_that_of_the_whole_volume(tmp_path):
    # 1001 values 0..1000: percentiles 0.5 and 99.5 are exactly 5 and 995.
    values = np.arange(1001, dtype=np.float32).reshape(7, 11, 13)
    path = save(tmp_path / "a.nii.gz", values)
    expected = np.rint(((values - 5) / 990).clip(0, 1).astype(np.float64) * 255)
    volume = read_image(path, channels=1).pixels[0]
    assert np.abs(volume - expected.T).max() <= 1
    assert np.mean(volume == expected.T) > 0.99
    for index in (0, 12):
        one = read_image(path, channels=1, slice_index=index).pixels[0]
        np.testing.assert_array_equal(one, volume[index])


def test_each_channel_has_its_own_window(tmp_path):
    ramp = np.arange(1001, dtype=np.float32).reshape(7, 11, 13)
    path = save(tmp_path / "a.nii", np.stack([ramp, 1000 * ramp], axis=-1))
    first, second = read_image(path, channels=2).pixels
    np.testing.assert_array_equal(first, second)


def test_a_rewritten_volume_gets_a_new_window(tmp_path):
    path = save(tmp_path / "a.nii", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    before = read_image(path, slice_index=0).pixels
    save(path, np.arange(24, dtype=np.float32).reshape(2, 3, 4) ** 3)
    os.utime(path, (1, 1))
    after = read_image(path, slice_index=0).pixels
    assert (before != after).any()
    np.testing.assert_array_equal(after, read_image(path).pixels[:, 0])


def test_slices_do_not_read_the_whole_volume_again(tmp_path, monkeypatch):
    path = save(tmp_path / "a.nii", np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    reads = []
    read = nifti.Volume.read

    def spy(self, slice_index):
        reads.append(slice_index)
        return read(self, slice_index)

    monkeypatch.setattr(nifti.Volume, "read", spy)
    for index in range(4):
        read_image(path, slice_index=index)
    assert reads == [0, None, 1, 2, 3]


@pytest.mark.parametrize("value", [0, 7])
def test_constant_volume_is_black(tmp_path, value):
    path = save(tmp_path / "a.nii", np.full((3, 3, 2), value, np.float32))
    assert read_image(path).pixels.max() == 0


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("window", [None, (0.0, 1.0)])
def test_a_volume_without_any_number_is_refused(tmp_path, value, window):
    voxels = np.full((3, 3, 2, 2), value, np.float32)
    voxels[..., 1] = np.arange(18).reshape(3, 3, 2)  # one channel is as it should be
    path = save(tmp_path / "a.nii", voxels)
    for slice_index in (None, 1):
        with pytest.raises(DataError, match="holds no number at all"):
            read_image(path, channels=2, window=window, slice_index=slice_index)
    voxels[1, 1, 0, 0] = 5
    save(path, voxels)
    assert read_image(path, channels=2, slice_index=1).pixels[0].max() == 0  # a slice may be empty


def test_rare_bright_voxels_are_not_lost(tmp_path):
    voxels = np.zeros((100, 100), np.uint8)
    voxels[5, 6] = 3  # both percentiles are 0, so the window is 0..3
    pixels = read_image(save(tmp_path / "a.nii", voxels), channels=1).pixels[0]
    assert (pixels[6, 5], pixels.sum(dtype=int)) == (255, 255)


def test_nan_is_black_and_infinity_clipped(tmp_path):
    voxels = np.array([[np.nan, -np.inf, np.inf, 0, 10]], np.float32)
    pixels = read_image(save(tmp_path / "a.nii", voxels), channels=1, window=(-10, 10)).pixels
    assert pixels.ravel().tolist() == [0, 0, 255, 128, 255]
    read_image(tmp_path / "a.nii")


def test_ceiling_counts_slices(tmp_path):
    path = save(tmp_path / "a.nii", np.zeros((5, 4, 3), np.uint8))
    assert read_image(path, max_pixels=60).pixels.shape == (3, 3, 4, 5)
    with pytest.raises(DataError, match=r"4 x 5 x 3 slices, more than the ceiling of 59"):
        read_image(path, max_pixels=59)


OBLIQUE = np.array(
    [[-1.6, 0.0, 1.2, -40], [0.0, -0.5, 0.0, 7], [1.2, 0.0, 1.6, 3], [0, 0, 0, 1]], np.float64
)  # columns of length 2, 0.5, 2: spacing 2 along columns, 0.5 along rows, 2 along slices


def position(image, row, column, section=0):
    return (image.affine @ [column, row, section, 1])[:3]


def test_affine_and_spacing(tmp_path):
    image = read_image(save(tmp_path / "a.nii.gz", np.zeros((6, 8, 3), np.int16), OBLIQUE))
    np.testing.assert_allclose(image.affine, OBLIQUE, atol=1e-6)
    assert image.spacing == pytest.approx((2, 0.5, 2))
    assert image.spatial_shape == (3, 8, 6)


def test_a_slice_lies_where_it_lay_in_the_volume(tmp_path):
    path = save(tmp_path / "a.nii.gz", np.zeros((6, 8, 3), np.int16), OBLIQUE)
    volume, one = read_image(path), read_image(path, slice_index=2)
    np.testing.assert_allclose(position(one, 5, 4), position(volume, 5, 4, 2))
    assert one.spacing == pytest.approx((0.5, 2))


def test_resizing_keeps_the_outer_edges(tmp_path):
    path = save(tmp_path / "a.nii.gz", np.zeros((6, 8), np.int16), OBLIQUE)
    full, small = read_image(path), read_image(path, size=(2, 3))
    assert small.spacing == pytest.approx((0.5 * 8 / 2, 2 * 6 / 3))
    for row, column in ((0, 0), (1, 1)):  # corners of the field of view, half a pixel outside
        np.testing.assert_allclose(
            position(small, row * 2 - 0.5, column * 3 - 0.5),
            position(full, row * 8 - 0.5, column * 6 - 0.5),
        )
    assert read_image(path, size=(2, 3)).pixels.shape == (3, 2, 3)
