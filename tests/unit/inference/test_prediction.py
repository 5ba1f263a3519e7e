"""A saved prediction: files of the image's name that other programs read back."""

import nibabel
import numpy as np
import PIL.Image
import pytest

from tests.tiny_models import brightness_model, disc, write_picture


@pytest.mark.parametrize("name", ["case.png", "case.jpg"])
def test_maps_of_a_picture_are_read_back_by_pillow(tmp_path, name):
    found = brightness_model(tmp_path).predict(write_picture(tmp_path / name, disc(40, 56)))

    files = found.save(str(tmp_path / "new/folder"))

    folder = tmp_path / "new/folder"
    assert files == {
        "mask": folder / "case_mask.png",
        "confidence": folder / "case_confidence.png",
        "overlay": folder / "case_overlay.png",
    }
    assert sorted(folder.iterdir()) == sorted(files.values())
    mask, confidence, overlay = (np.asarray(PIL.Image.open(file)) for file in files.values())
    assert 0 < found.mask.sum() < found.mask.size
    np.testing.assert_array_equal(mask, found.mask)
    np.testing.assert_allclose(confidence / 65535, found.confidence, atol=0.5 / 65535)
    np.testing.assert_array_equal(overlay, found.overlay())
    found.save(folder)  # again, over the files that are there
    assert len(list(folder.iterdir())) == 3


def test_maps_of_a_volume_lie_where_the_volume_lies(tmp_path):
    voxels = np.zeros((50, 40, 3), np.float32)  # columns, rows, slices
    voxels[10:20, 5:25, 1] = 100
    affine = np.array([[-2.0, 0, 0, 5], [0, -3, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1]])
    path = tmp_path / "scan.nii.gz"
    nibabel.save(nibabel.Nifti1Image(voxels, affine), path)
    found = brightness_model(tmp_path).predict(path)

    files = found.save(tmp_path / "maps")

    assert [file.name for file in files.values()] == [
        "scan_mask.nii.gz",
        "scan_confidence.nii.gz",
        "scan_overlay.png",
    ]
    mask, confidence = (nibabel.load(files[name]) for name in ("mask", "confidence"))
    for written in (mask, confidence):
        assert written.shape == (50, 40, 3)
        np.testing.assert_allclose(written.affine, affine)
    inside = np.asarray(mask.dataobj)[..., 1] > 0
    assert (inside == (voxels[..., 1] > 50)).mean() > 0.97
    assert found.mask.sum() == (np.asarray(mask.dataobj) > 0).sum()
    np.testing.assert_allclose(
        np.sort(np.asarray(confidence.dataobj), axis=None),
        np.sort(found.confidence, axis=None),
        atol=1e-4,
    )
    with PIL.Image.open(files["overlay"]) as picture:
        np.testing.assert_array_equal(np.asarray(picture), found.overlay(slice_index=1))
