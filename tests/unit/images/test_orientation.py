"""Volumes in any orientation: read as a radiologist sees them, written as they were stored."""

import itertools
import math

import nibabel
import numpy as np
import pytest
from nibabel.orientations import axcodes2ornt, inv_ornt_aff, ornt_transform

from segconf.errors import DataError
from segconf.images.io import read_confidence, read_header, read_image, write_confidence, write_mask
from segconf.images.masks import read_mask
from segconf.images.orientation import Orientation, spacing_of

EVERY_STORAGE = [
    "".join(codes)
    for order in itertools.permutations(("RL", "AP", "SI"))
    for codes in itertools.product(*order)
]
"""All 48 ways to store a volume, by where its axes lead."""

RAS = np.array(
    [[0.9, 0.1, 0.0, -20], [-0.1, 1.1, 0.05, 30], [0.0, -0.05, 1.2, 5], [0, 0, 0, 1]], np.float64
)
"""Slightly oblique, spacing about 0.9, 1.1 and 1.2."""


def stored(voxels, affine, codes):
    """The same volume with its axes in another order and direction, by nibabel."""
    change = ornt_transform(axcodes2ornt("RAS"), axcodes2ornt(codes))
    turned = nibabel.orientations.apply_orientation(voxels, change)
    return turned, affine @ inv_ornt_aff(change, voxels.shape)


def save(path, voxels, affine, *, code=1):
    """Write a file whose only form is the given affine, whatever its content."""
    header = nibabel.Nifti1Header()
    header.set_data_dtype(voxels.dtype)
    header["sform_code"] = code
    for row, name in zip(affine, ("srow_x", "srow_y", "srow_z"), strict=False):
        header[name] = row
    header["pixdim"][1:4] = 2, 1, 1
    nibabel.save(nibabel.Nifti1Image(voxels, None, header), path)
    return path


def numbered(shape=(4, 5, 3)):
    """Voxels of a volume in RAS order, each with its own value."""
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


@pytest.mark.parametrize("codes", EVERY_STORAGE)
def test_every_storage_is_read_as_the_same_pixels_and_written_back(tmp_path, codes):
    voxels = numbered()
    path = save(tmp_path / "a.nii", *stored(voxels, RAS, codes))
    image = read_image(path, channels=1, window=(0, 255))
    # From right to left, from front to back, from foot to head.
    for d, h, w in np.ndindex(3, 5, 4):
        assert image.pixels[0, d, h, w] == voxels[3 - w, 4 - h, d]
        right, front, head = 3 - w, 4 - h, d
        np.testing.assert_allclose(
            image.affine @ [w, h, d, 1], RAS @ [right, front, head, 1], atol=1e-5
        )
    assert image.orientation.marks == ("R", "L", "A", "P")
    assert image.spacing == pytest.approx(
        [np.linalg.norm(RAS[:3, axis]) for axis in (2, 1, 0)], abs=1e-6
    )
    for index in range(3):
        one = read_image(path, channels=1, window=(0, 255), slice_index=index)
        np.testing.assert_array_equal(one.pixels, image.pixels[:, index])

    write_mask(tmp_path / "m.nii", image.pixels[0], like=image)
    write_confidence(tmp_path / "c.nii", image.pixels[0] / np.float32(255), like=image)
    before, mask = nibabel.load(path), nibabel.load(tmp_path / "m.nii")
    np.testing.assert_array_equal(np.asarray(mask.dataobj), np.asarray(before.dataobj))
    np.testing.assert_array_equal(mask.affine, before.affine)
    np.testing.assert_array_equal(
        read_mask(tmp_path / "m.nii", classes=255, image=read_header(path)), image.pixels[0]
    )
    confidence = nibabel.load(tmp_path / "c.nii")
    np.testing.assert_allclose(
        confidence.get_fdata() * 255, np.asarray(before.dataobj), rtol=0, atol=1e-4
    )
    np.testing.assert_array_equal(
        read_confidence(tmp_path / "c.nii"), image.pixels[0] / np.float32(255)
    )


@pytest.mark.parametrize("codes", EVERY_STORAGE)
@pytest.mark.parametrize(
    ("thick", "directions", "marks"),
    [("S", "SPL", "RLAP"), ("A", "PIL", "RLSI"), ("R", "LIP", "APSI")],
)
def test_thick_slices_are_seen_in_the_plane_of_their_acquisition(codes, thick, directions, marks):
    steps = np.ones(4)
    steps["RAS".index(thick)] = 3
    voxels, affine = stored(numbered(), RAS @ np.diag(steps), codes)
    orientation = Orientation.of(affine, voxels.shape)
    assert orientation.directions == directions
    assert "".join(orientation.marks) == marks
    slices, rows, columns = orientation.shape(voxels.shape)
    sizes = dict(zip("RAS", (4, 5, 3), strict=True))
    sides = {"L": "R", "P": "A", "I": "S", "R": "R", "A": "A", "S": "S"}
    assert [slices, rows, columns] == [sizes[sides[letter]] for letter in directions]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_single_slice_keeps_its_plane(tmp_path, axis):
    shape = [6, 5, 4]
    shape[axis] = 1
    path = save(tmp_path / "a.nii", numbered(tuple(shape)), np.diag([1.0, 1.0, 1.0, 1.0]))
    image = read_image(path, channels=1)
    rows, columns = {0: (4, 5), 1: (4, 6), 2: (5, 6)}[axis]
    assert image.pixels.shape == (1, rows, columns)
    write_mask(tmp_path / "m.nii", np.zeros((rows, columns), np.uint8), like=image)
    stored_shape = nibabel.load(tmp_path / "m.nii").shape
    assert stored_shape == tuple(shape)


def about_vertical(degrees):
    angle = np.radians(degrees)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return turn


def test_oblique_axes_take_the_closest_name():
    # The first axis leads 40 degrees from right to front, then 50: it is closer to the front.
    assert Orientation.of(about_vertical(40), (4, 5, 3)).axes == (2, 1, 0)
    assert Orientation.of(about_vertical(50), (4, 5, 3)).axes == (2, 0, 1)
    assert Orientation.of(about_vertical(-50), (4, 5, 3)).reversed == (False, False, True)


@pytest.mark.parametrize("kind", ["no form code", "singular", "not finite"])
def test_unknown_orientation_is_read_as_it_is_stored(tmp_path, kind):
    voxels = numbered()
    affine = np.diag([2.0, 1.0, 1.0, 1.0])
    if kind == "singular":
        affine[2, 2] = 0
    if kind == "not finite":
        affine[0, 0] = np.nan
    path = save(tmp_path / "a.nii", voxels, affine, code=0 if kind == "no form code" else 1)
    image = read_image(path, channels=1, window=(0, 255))
    np.testing.assert_array_equal(image.pixels[0], voxels.T)
    assert image.orientation.marks is None
    write_mask(tmp_path / "m.nii", image.pixels[0], like=image)
    mask = nibabel.load(tmp_path / "m.nii")
    np.testing.assert_array_equal(np.asarray(mask.dataobj), voxels)
    assert mask.header["sform_code"] == (0 if kind == "no form code" else 1)
    np.testing.assert_array_equal(mask.affine, nibabel.load(path).affine)


@pytest.mark.parametrize(("unit", "factor"), [("mm", 1), ("micron", 0.001), ("meter", 1000)])
def test_geometry_is_in_millimetres_whatever_the_unit_of_the_file(tmp_path, unit, factor):
    file = nibabel.Nifti1Image(numbered(), np.diag([3.0, 2.0, 1.5, 1.0]))
    file.header.set_xyzt_units(unit)
    nibabel.save(file, tmp_path / "a.nii")
    image = read_image(tmp_path / "a.nii", channels=1)
    assert image.spacing == pytest.approx((1.5 * factor, 2 * factor, 3 * factor))
    write_mask(tmp_path / "m.nii", image.pixels[0], like=image)
    written = nibabel.load(tmp_path / "m.nii")
    np.testing.assert_array_equal(written.affine, file.affine)
    assert written.header.get_xyzt_units()[0] == unit


def test_a_mask_stored_in_another_way_lies_on_its_image(tmp_path):
    voxels = numbered()
    image = save(tmp_path / "a.nii", *stored(voxels, RAS, "RAS"))
    mask = save(tmp_path / "m.nii", *stored((voxels > 17).astype(np.uint8), RAS, "SLA"))
    pixels = read_image(image, channels=1, window=(0, 255)).pixels[0]
    read = read_mask(mask, image=read_header(image))
    np.testing.assert_array_equal(read, pixels > 17)


def test_a_mask_that_lies_elsewhere_is_refused(tmp_path):
    image = read_header(save(tmp_path / "a.nii", numbered(), np.eye(4)))
    flipped = np.diag([-1.0, 1.0, 1.0, 1.0])
    moved = np.eye(4)
    moved[0, 3] = 0.6
    for number, affine in enumerate((flipped, moved)):
        mask = save(tmp_path / f"m{number}.nii", np.zeros((4, 5, 3), np.uint8), affine)
        with pytest.raises(DataError, match=rf"m{number}\.nii: lies elsewhere than its image"):
            read_mask(mask, image=image)
    moved[0, 3] = 0.4
    near = save(tmp_path / "near.nii", np.zeros((4, 5, 3), np.uint8), moved)
    assert read_mask(near, image=image).shape == (3, 5, 4)


def test_a_mask_without_orientation_is_refused_beside_an_image_with_one(tmp_path):
    known = save(tmp_path / "a.nii", np.zeros((4, 5, 3), np.uint8), np.eye(4))
    unknown = save(tmp_path / "m.nii", np.zeros((4, 5, 3), np.uint8), np.eye(4), code=0)
    with pytest.raises(DataError, match=r"m\.nii: the file does not say how the patient lay"):
        read_mask(unknown, image=read_header(known))
    with pytest.raises(DataError, match=r"a\.nii: its image does not say how the patient lay"):
        read_mask(known, image=read_header(unknown))
    assert read_mask(unknown, image=read_header(unknown)).shape == (3, 5, 4)


def test_slices_twice_as_thick_stay_slices_when_numbers_are_rounded():
    # Sagittal: columns lead back, rows down, slices to the left, 1.6 mm apart but for rounding.
    step = np.nextafter(1.6, 0)
    affine = np.array(
        [[0, 0, -step, 60], [-0.8, 0, 0, 40], [0, -0.8, 0, 90], [0, 0, 0, 1]], np.float64
    )
    for matrix in (affine, affine.astype(np.float32).astype(np.float64)):
        assert Orientation.of(matrix, (40, 30, 20)).shape((40, 30, 20)) == (20, 30, 40)


def test_the_distance_of_tilted_slices_is_across_them():
    # A gantry tilted by 20 degrees: slices are 5 mm apart along the table.
    tilt = np.radians(20)
    affine = np.eye(4)
    affine[:3, :3] = np.array([[0.8, 0, 0], [0, 0.8 * np.cos(tilt), 0], [0, 0.8 * np.sin(tilt), 5]])
    assert spacing_of(affine, 3) == pytest.approx((5 * np.cos(tilt), 0.8, 0.8))
    assert math.prod(spacing_of(affine, 3)) == pytest.approx(abs(np.linalg.det(affine[:3, :3])))
    assert spacing_of(affine, 2) == pytest.approx((0.8, 0.8))
    assert spacing_of(np.diag([0.8, 0.8, 5, 1]), 3) == (5, 0.8, 0.8)
