"""A volume in the review page: the shape of its pixels, the sides of the patient, corrections."""

import nibabel
import numpy as np
import pytest

from segconf.images.masks import read_mask
from segconf.images.run_length import decode_runs
from segconf.inference.predict import predict
from tests.tiny_models import brightness_model

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver

from tests.browsers import CHROMIUM, DRIVER, chromium, click, exported, move, open_page

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium is not installed")

SHEET = "return document.getElementById('sheet').getBoundingClientRect().toJSON()"
SIDES = "return [...document.getElementById('sides').children].map((side) => side.textContent)"


def test_pixels_that_are_not_square(tmp_path):
    voxels = np.random.default_rng(0).integers(0, 90, (40, 30, 3)).astype(np.uint8)
    voxels[15:25, 10:20] += 120
    affine = np.diag([1.0, 1.5, 2.0, 1.0])  # 40 columns of 1 mm, 30 rows of 1.5 mm
    nibabel.save(nibabel.Nifti1Image(voxels, affine), tmp_path / "v.nii.gz")
    maps = tmp_path / "maps"
    (row,) = predict(brightness_model(tmp_path / "run"), tmp_path / "v.nii.gz", maps).rows
    before = read_mask(maps / "masks/v.nii.gz")[row.slice]

    with chromium(tmp_path / "profile", tmp_path / "downloads") as page:
        open_page(page, (maps / "review.html").as_uri())
        box = page.execute_script(SHEET)
        assert box["width"] / box["height"] == pytest.approx(40 / 45, rel=0.01)
        assert page.execute_script(SIDES) == ["R", "L", "A", "P"]
        click(page, "tool-brush")
        move(page, "brush-size", 3)
        scale = np.array([box["width"] / 40, box["height"] / 30])
        corner = np.array([box["x"], box["y"]])
        centre = np.rint(corner + np.array([33.5, 6.5]) * scale)
        pointer = webdriver.ActionChains(page, duration=20)
        pointer.w3c_actions.pointer_action.move_to_location(*(int(value) for value in centre))
        pointer.w3c_actions.pointer_action.pointer_down(button=0)
        pointer.w3c_actions.pointer_action.pointer_up(button=0)
        pointer.perform()
        mask = exported(page, tmp_path / "downloads")[1]["v"]["mask"]
    x, y = (centre - corner) / scale
    rows, columns = np.mgrid[:30, :40] + 0.5
    painted = (columns - x) ** 2 + (rows - y) ** 2 <= 1.5**2
    assert painted.sum() > 4
    expected = before.astype(bool) | painted
    np.testing.assert_array_equal(decode_runs(mask["runs"], tuple(mask["size"])), expected)
