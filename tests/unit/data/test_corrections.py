"""Corrected masks of a prediction folder, and the masks that can serve as labels."""

import json

import nibabel
import numpy as np
import PIL.Image
import pytest

from segconf.data.corrections import (
    CorrectionRecord,
    ReviewedCase,
    read_corrected_slice,
    read_correction,
    remove_correction,
    reviewed_cases,
    write_correction,
)
from segconf.data.decisions import Decision, decisions_file, write_decisions
from segconf.errors import DataError
from segconf.images.masks import read_mask

MASK = np.array([[0, 1, 1], [2, 0, 0]], np.uint8)
HASHES = {"model_sha256": "aa", "image_sha256": "bb", "mask_sha256": "cc"}
AFFINE = np.array([[0, -2.0, 0, 5], [1.5, 0, 0, -7], [0, 0, 4, 1], [0, 0, 0, 1]])


def record(case="a/b", file="a/b.jpg", slice_=None):
    return CorrectionRecord(
        case, file, slice_, classes=3, corrected_at="2026-01-02T03:04:05Z", **HASHES
    )


def test_a_picture_has_the_class_index_of_every_pixel(tmp_path):
    path = write_correction(tmp_path, record(), MASK)
    assert path == tmp_path / "corrected/a/b.png"
    with PIL.Image.open(path) as picture:
        assert (picture.mode, np.asarray(picture).tolist()) == ("L", MASK.tolist())
    assert read_correction(tmp_path, "a/b") == record()
    assert read_corrected_slice(tmp_path, record()).tolist() == MASK.tolist()
    content = json.loads((tmp_path / "corrected/a/b.json").read_text())
    assert content["format"] == "segconf correction 1"
    assert content["image_sha256"] == "bb"

    remove_correction(tmp_path, record())
    assert read_correction(tmp_path, "a/b") is None
    assert not path.exists()


def test_one_slice_of_a_volume_is_corrected_on_the_grid_of_the_prediction(tmp_path):
    voxels = np.random.default_rng(0).integers(0, 3, (3, 2, 4), dtype=np.uint8)
    (tmp_path / "masks").mkdir()
    nibabel.save(nibabel.Nifti1Image(voxels, AFFINE), tmp_path / "masks/scan.nii.gz")
    shown = read_mask(tmp_path / "masks/scan.nii.gz", classes=3)  # (D, H, W) as it is looked at
    mask = (shown[2] + 1) % 3

    one = record("scan", "scan.nii", slice_=2)
    path = write_correction(tmp_path, one, mask)

    assert path == tmp_path / "corrected/scan.nii.gz"
    written = nibabel.load(path)
    np.testing.assert_allclose(written.affine, AFFINE)
    corrected = np.asarray(written.dataobj)
    changed = corrected != voxels
    assert changed.sum() == mask.size  # every voxel of one slice, along one axis of the file
    assert 1 in [len(np.unique(places)) for places in np.nonzero(changed)]
    np.testing.assert_array_equal(corrected[changed], (voxels[changed] + 1) % 3)
    assert read_corrected_slice(tmp_path, one).tolist() == mask.tolist()


def test_accepted_and_corrected_masks_are_labels(tmp_path):
    (tmp_path / "masks").mkdir()
    accepted = tmp_path / "masks/one.png"
    PIL.Image.fromarray(MASK).save(accepted)
    corrected = write_correction(tmp_path, record(), MASK)
    rows = [
        Decision("one", "one.jpg", "accept", image_sha256="11"),
        Decision("a/b", "a/b.jpg", "corrected", image_sha256="bb"),
        Decision("two", "two.jpg", "reject"),
        Decision("three", "three.jpg", "edit"),
        Decision("four", "four.jpg", note="what is this?"),
    ]
    write_decisions(decisions_file(tmp_path), rows)
    assert reviewed_cases(tmp_path) == [
        ReviewedCase("a/b", corrected, corrected=True, slice=None, image_sha256="bb"),
        ReviewedCase("one", accepted, corrected=False, slice=None, image_sha256="11"),
    ]
    accepted.unlink()
    with pytest.raises(DataError, match=r"one\.png: the accepted mask of one is gone"):
        reviewed_cases(tmp_path)


def test_what_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(DataError, match=r"decisions\.csv: no such file"):
        reviewed_cases(tmp_path)
    write_decisions(decisions_file(tmp_path), [Decision("a/b", "a/b.jpg", "corrected")])
    with pytest.raises(DataError, match="a/b was corrected, but there is no"):
        reviewed_cases(tmp_path)
    mask = write_correction(tmp_path, record(), MASK)
    mask.unlink()
    with pytest.raises(DataError, match="the corrected mask is gone"):
        reviewed_cases(tmp_path)
    (tmp_path / "corrected/a/b.json").write_text('{"format": "segconf correction 1"}')
    with pytest.raises(DataError, match=r"b\.json: case: Field required"):
        read_correction(tmp_path, "a/b")


def test_accepted_and_chosen_classes_are_labels(tmp_path):
    write_decisions(
        decisions_file(tmp_path),
        [
            Decision("one", "one.jpg", "accept", image_sha256="11", label="nevus"),
            Decision("a/b", "a/b.jpg", "corrected", label="melanoma"),
            Decision("two", "two.jpg", "edit"),
        ],
    )
    assert reviewed_cases(tmp_path) == [
        ReviewedCase("a/b", None, True, None, "", "melanoma"),
        ReviewedCase("one", None, False, None, "11", "nevus"),
    ]
