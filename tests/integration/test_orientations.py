"""A volume stored in another way is the same volume: the same maps and Dice of every class."""

import csv

import nibabel
import numpy as np
import pytest
import torch
from nibabel.orientations import (
    apply_orientation,
    axcodes2ornt,
    inv_ornt_aff,
    io_orientation,
    ornt_transform,
)
from torch import nn

from segconf.data.cache import PixelCache
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.preprocessing import Preprocessing
from segconf.evaluation.score import score
from segconf.inference.model import load_model
from segconf.inference.pipeline import PredictOptions
from segconf.inference.predict import predict
from segconf.inference.predictors import SinglePass
from tests.tiny_models import write_checkpoint
from tests.volume_runs import volume

STORED = ("RAS", "LPS", "PIR", "ASL")


class Sides(nn.Module):
    """Three classes by grey value and place: a volume that is turned over gets another answer."""

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)  # (B, 1, h, w)
        down = torch.linspace(-1, 1, grey.shape[2])[None, None, :, None]
        right = torch.linspace(-1, 1, grey.shape[3])[None, None, None]
        parts = [0 * grey + 0.4, grey - 0.5 * down + 0.3 * right, grey + 0.6 * down - 0.2 * right]
        return torch.cat(parts, dim=1)


def oblique(degrees=17):
    """A turn about the axis from head to foot and another about that from left to right."""
    angle = np.radians(degrees)
    about_z, about_x = np.eye(4), np.eye(4)
    about_z[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    about_x[1:3, 1:3] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return about_z @ about_x


def write_copies(folder, image, mask, affine):
    """The same volume in several orders and directions of its axes, and oblique."""
    for codes in STORED:
        for turn, name in ((np.eye(4), codes), (oblique(), f"{codes}-oblique")):
            change = ornt_transform(io_orientation(affine), axcodes2ornt(codes))
            placed = turn @ affine @ inv_ornt_aff(change, image.shape)
            for kind, voxels in (("images", image), ("masks", mask)):
                (folder / kind).mkdir(parents=True, exist_ok=True)
                file = nibabel.Nifti1Image(apply_orientation(voxels, change), placed)
                nibabel.save(file, folder / kind / f"{name}.nii.gz")
    return [f"{codes}{turn}" for codes in STORED for turn in ("", "-oblique")]


@pytest.fixture(params=["made up", "hippocampus"])
def copies(request, tmp_path):
    """Folder and names of the copies of a volume of three classes."""
    if request.param == "made up":
        voxels, mask = volume(3, slices=9, side=21)
        affine = np.diag([1.2, 0.9, 1.5, 1.0])
        image = voxels.astype(np.float32)
    else:
        path = sorted(request.getfixturevalue("shared")("data/hippocampus/images").iterdir())[0]
        file = nibabel.load(path)
        image, affine = np.asarray(file.dataobj), file.affine
        mask = np.asarray(nibabel.load(path.parents[1] / "masks" / path.name).dataobj)
    return tmp_path, write_copies(tmp_path, image, mask, affine)


def in_ras(path):
    """Voxels of a file with its axes to the right, the front and the head."""
    file = nibabel.load(path)
    change = ornt_transform(io_orientation(file.affine), axcodes2ornt("RAS"))
    return apply_orientation(np.asarray(file.dataobj), change)


def test_copies_of_a_volume_get_the_same_maps_and_the_same_dice_of_every_class(copies):
    folder, names = copies
    model = load_model(write_checkpoint(folder / "best.safetensors", classes=3), device="cpu")
    model.predictor = SinglePass(Sides())
    maps = folder / "maps"
    predict(model, folder / "images", maps, options=PredictOptions(save_probabilities=True))

    for kind in ("masks", "confidence", "probabilities"):
        suffixes = ("_0", "_1", "_2") if kind == "probabilities" else ("",)
        for suffix in suffixes:
            first = in_ras(maps / kind / f"{names[0]}{suffix}.nii.gz")
            for name in names:
                path = maps / kind / f"{name}{suffix}.nii.gz"
                image = nibabel.load(folder / "images" / f"{name}.nii.gz")
                np.testing.assert_array_equal(in_ras(path), first)
                np.testing.assert_array_equal(nibabel.load(path).affine, image.affine)
                assert nibabel.load(path).shape == image.shape
    assert len(np.unique(in_ras(maps / "masks" / f"{names[0]}.nii.gz"))) == 3

    found, truth = (in_ras(base / "masks" / f"{names[0]}.nii.gz") for base in (maps, folder))
    expected = tuple(
        2 * ((found == k) & (truth == k)).sum() / ((found == k).sum() + (truth == k).sum())
        for k in (1, 2)
    )
    report = score(maps, folder / "masks", classes=3).report
    assert len(report.cases) == len(names)
    for row in report.cases:
        assert row.class_dice == pytest.approx(expected, rel=1e-12), row.case
        assert row.hausdorff95 == pytest.approx(report.cases[0].hausdorff95, rel=1e-5)
    with (maps / "structures.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    for number in ("1", "2"):
        own = [line for line in lines if line["class_index"] == number]
        volumes = [float(line["volume_mm3"]) for line in own]
        assert volumes == pytest.approx([volumes[0]] * len(names), rel=1e-5)
        assert (
            len({(line["pixels"], line["components"], line["expected_dice"]) for line in own}) == 1
        )


def test_copies_of_a_volume_are_the_same_pixels_in_training(copies):
    folder, names = copies
    cases = find_cases(str(folder), options=FindOptions(0, 0)).training
    cache = PixelCache(folder, Preprocessing((32, 24), channels=1, classes=3))
    slices = len(cases) // len(names)
    for pixels in (cache.images(cases, label="x"), cache.masks(cases, label="x")):
        by_name = {}
        for case, one in zip(cases, pixels, strict=True):
            by_name.setdefault(case.image_path.name, []).append(one)
        arrays = [np.stack(parts) for parts in by_name.values()]
        assert len(arrays) == len(names)
        for array in arrays:
            assert len(array) == slices
            np.testing.assert_array_equal(array, arrays[0])
