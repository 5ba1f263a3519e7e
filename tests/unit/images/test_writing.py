"""What is written has the grid of what was read, and comes back as it was."""

import nibabel
import numpy as np
import PIL.Image
import pytest

from segconf.errors import DataError, FileError
from segconf.images.io import read_confidence, read_image, write_confidence, write_mask
from segconf.images.masks import read_mask


def rotation(x, y, z):
    """Product of rotations about the three axes."""
    about_x = [[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]]
    about_y = [[np.cos(y), 0, np.sin(y)], [0, 1, 0], [-np.sin(y), 0, np.cos(y)]]
    about_z = [[np.cos(z), -np.sin(z), 0], [np.sin(z), np.cos(z), 0], [0, 0, 1]]
    return np.array(about_x) @ about_y @ about_z


@pytest.fixture(params=[(7, 5, 4), (7, 5, 1), (7, 5), (7, 5, 4, 2)], ids=str)
def oblique_nifti(request, tmp_path):
    affine = np.eye(4)
    affine[:3, :3] = rotation(0.3, -0.2, 0.5) @ np.diag([0.7, -1.1, 3])
    affine[:3, 3] = (-80.25, 33.5, 12.125)
    voxels = np.random.default_rng(0).normal(size=request.param).astype(np.float32)
    file = nibabel.Nifti1Image(voxels, affine)
    file.set_qform(affine, code="scanner")
    file.set_sform(affine, code="scanner")
    file.header.set_xyzt_units("mm", "sec")
    file.header["cal_max"] = 1000
    file.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"name of a patient"))
    nibabel.save(file, tmp_path / "image.nii.gz")
    return tmp_path / "image.nii.gz"


@pytest.fixture
def oblique_image(oblique_nifti):
    file = nibabel.load(oblique_nifti)
    return read_image(oblique_nifti, channels=2 if file.ndim == 4 else 1)


@pytest.mark.parametrize("suffix", ["nii", "nii.gz"])
def test_written_mask_has_the_voxel_grid_of_the_image(
    tmp_path, oblique_nifti, oblique_image, suffix
):
    mask = np.random.default_rng(1).integers(0, 3, oblique_image.spatial_shape)
    write_mask(tmp_path / f"mask.{suffix}", mask, like=oblique_image)
    np.testing.assert_array_equal(read_mask(tmp_path / f"mask.{suffix}", classes=3), mask)

    original, written = nibabel.load(oblique_nifti), nibabel.load(tmp_path / f"mask.{suffix}")
    assert written.shape == original.shape[:3]
    assert written.get_data_dtype() == np.uint8
    np.testing.assert_array_equal(written.affine, original.affine)
    for form in ("get_qform", "get_sform"):
        before, after = getattr(original, form)(coded=True), getattr(written, form)(coded=True)
        np.testing.assert_array_equal(before[0], after[0])
        assert before[1] == after[1]
    assert written.header.get_xyzt_units() == original.header.get_xyzt_units()
    assert written.header["cal_max"] == 0
    assert len(written.header.extensions) == 0
    assert len(oblique_image.header.extensions) == 1


def test_mask_drawn_on_the_pixels_lies_on_the_same_voxels(tmp_path, oblique_nifti, oblique_image):
    bright = oblique_image.pixels[0] > 128
    write_mask(tmp_path / "mask.nii.gz", bright, like=oblique_image)
    mask = np.asarray(nibabel.load(tmp_path / "mask.nii.gz").dataobj)
    voxels = np.asarray(nibabel.load(oblique_nifti).dataobj)
    channel = voxels[..., 0] if voxels.ndim == 4 else voxels
    assert channel[mask == 1].min() > channel[mask == 0].max()


def test_confidence_round_trip_on_a_volume(tmp_path, oblique_image):
    confidence = np.random.default_rng(2).random(oblique_image.spatial_shape).astype(np.float32)
    write_confidence(tmp_path / "c.nii.gz", confidence, like=oblique_image)
    np.testing.assert_array_equal(read_confidence(tmp_path / "c.nii.gz"), confidence)
    written = nibabel.load(tmp_path / "c.nii.gz")
    assert written.get_data_dtype() == np.float32
    np.testing.assert_array_equal(written.affine, nibabel.load(oblique_image.path).affine)


def test_mask_of_one_slice_lies_where_the_slice_lay(tmp_path):
    affine = np.diag([1.0, 2.0, 3.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6), np.int16), affine), tmp_path / "a.nii")
    image = read_image(tmp_path / "a.nii", slice_index=4)
    write_mask(tmp_path / "m.nii", np.ones((5, 4), np.uint8), like=image)
    written = nibabel.load(tmp_path / "m.nii")
    assert written.shape == (4, 5, 1)
    np.testing.assert_allclose(written.affine[:3, 3], [0, 0, 12])  # slice 4 of 3 mm
    np.testing.assert_allclose(written.affine[:3, :3], affine[:3, :3])


def test_nifti_version_2_stays_version_2(tmp_path):
    nibabel.save(nibabel.Nifti2Image(np.zeros((4, 5), np.int16), np.eye(4)), tmp_path / "a.nii")
    write_mask(tmp_path / "m.nii", np.ones((5, 4), np.uint8), like=read_image(tmp_path / "a.nii"))
    assert isinstance(nibabel.load(tmp_path / "m.nii"), nibabel.Nifti2Image)


def test_nifti_without_an_image_has_voxels_of_one_millimetre(tmp_path):
    write_mask(tmp_path / "m.nii.gz", np.array([[0, 1, 2]]))
    written = nibabel.load(tmp_path / "m.nii.gz")
    np.testing.assert_array_equal(written.affine, np.diag([-1.0, -1.0, 1.0, 1.0]))
    assert np.asarray(written.dataobj).tolist() == [[[0]], [[1]], [[2]]]


def test_png_mask(tmp_path):
    mask = np.array([[0, 1, 2], [255, 2, 1]])
    write_mask(tmp_path / "m.png", mask)
    picture = PIL.Image.open(tmp_path / "m.png")
    assert (picture.mode, np.asarray(picture).tolist()) == ("L", mask.tolist())
    read = read_mask(tmp_path / "m.png", classes=3, ignore_255=True)
    np.testing.assert_array_equal(read, mask)


def test_png_confidence_has_sixteen_bits_and_is_rounded(tmp_path):
    confidence = np.array([[0, 1, 0.5, 1.6 / 65535, 1.4 / 65535]])
    write_confidence(tmp_path / "c.png", confidence)
    picture = PIL.Image.open(tmp_path / "c.png")
    # 0.5 * 65535 = 32767.5, to the even 32768
    assert np.asarray(picture).tolist() == [[0, 65535, 32768, 2, 1]]
    read = read_confidence(tmp_path / "c.png")
    assert read.dtype == np.float32
    np.testing.assert_allclose(read, np.array([[0, 65535, 32768, 2, 1]]) / 65535, rtol=1e-6)


def test_confidence_of_another_tool_may_have_eight_bits(tmp_path):
    PIL.Image.fromarray(np.array([[0, 51, 255]], np.uint8)).save(tmp_path / "c.png")
    np.testing.assert_allclose(read_confidence(tmp_path / "c.png"), [[0, 0.2, 1]], rtol=1e-6)


def test_confidence_that_is_none(tmp_path):
    PIL.Image.new("RGB", (2, 2)).save(tmp_path / "c.png")
    with pytest.raises(DataError, match=r"c\.png: RGB pixels.*16 bits"):
        read_confidence(tmp_path / "c.png")
    nibabel.save(nibabel.Nifti1Image(np.full((2, 2), 1.5), np.eye(4)), tmp_path / "c.nii")
    with pytest.raises(DataError, match=r"c\.nii: 1 channels between 1\.5 and 1\.5"):
        read_confidence(tmp_path / "c.nii")


@pytest.mark.parametrize("bad", [-0.1, 1.001, np.nan])
def test_only_confidence_between_0_and_1_is_written(tmp_path, bad):
    with pytest.raises(ValueError, match="between 0 and 1"):
        write_confidence(tmp_path / "c.png", np.array([[bad, 0.5]]))
    assert not (tmp_path / "c.png").exists()


@pytest.mark.parametrize("mask", [np.array([[0.5]]), np.array([[256]]), np.array([[-1]])])
def test_only_class_indices_are_written(tmp_path, mask):
    with pytest.raises(ValueError, match="a mask holds"):
        write_mask(tmp_path / "m.png", mask)


def test_wrong_grid_or_suffix_is_a_mistake_of_the_program(tmp_path):
    PIL.Image.new("L", (4, 3)).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"shape \(4, 3\), its image has \(3, 4\)"):
        write_mask(tmp_path / "m.png", np.zeros((4, 3), np.uint8), like=image)
    with pytest.raises(ValueError, match=r"cannot be written as '\.jpg'"):
        write_mask(tmp_path / "m.jpg", np.zeros((3, 4), np.uint8), like=image)
    with pytest.raises(ValueError, match="3 axes"):
        write_mask(tmp_path / "m.png", np.zeros((2, 3, 4), np.uint8))


@pytest.mark.parametrize("name", ["m.png", "m.nii.gz"])
def test_missing_folder(tmp_path, name):
    with pytest.raises(FileError, match=rf"{name}: cannot be written.*Make its folder first"):
        write_mask(tmp_path / "nowhere" / name, np.zeros((2, 2), np.uint8))
