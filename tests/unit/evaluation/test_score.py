"""Predictions of other tools: every way to store them gives the same numbers."""

import json

import nibabel
import numpy as np
import pytest
import torch
from PIL import Image

from segconf.errors import ConfigError, DataError
from segconf.evaluation.score import score
from segconf.images.io import write_confidence, write_mask
from segconf.metrics.selective import aurc_bounds
from segconf.metrics.streaming import ConfidenceMetrics
from tests.references import metrics as reference

NAMES = ("a", "b", "c")


@pytest.fixture
def truth(tmp_path):
    """Three masks and probabilities (2, H, W) that are right most of the time."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "truth"
    folder.mkdir()
    probabilities = {}
    for name in NAMES:
        mask = np.zeros((20, 24), np.uint8)
        mask[5:14, 6:18] = 1
        Image.fromarray(mask * 255).save(folder / f"{name}_segmentation.png")
        logit = 4 * (mask - 0.5) + generator.normal(0, 2, mask.shape)
        foreground = 1 / (1 + np.exp(-logit))
        probabilities[name] = np.stack([1 - foreground, foreground]).astype(np.float32)
    return folder, probabilities


@pytest.fixture
def expected(truth):
    """All metrics by the slow reference."""
    folder, probabilities = truth
    pixels, labels = [], []
    for name in NAMES:
        mask = np.array(Image.open(folder / f"{name}_segmentation.png")) // 255
        pixels += np.moveaxis(probabilities[name], 0, -1).reshape(-1, 2).astype(float).tolist()
        labels += mask.ravel().tolist()
    logits = [[float(np.log(p)) for p in pixel] for pixel in pixels]
    return reference.evaluate(logits, labels)


def check(scored, expected, tolerance=2e-6):
    values = scored.report.metrics["all"]["strict"]
    for name in ("miou", "aurc", "ece", "nll", "brier", "accuracy"):
        assert values[name] == pytest.approx(expected[name], abs=tolerance), name


@pytest.mark.parametrize("key", ["probabilities", "softmax"])
def test_npz_of_nnunet(tmp_path, truth, expected, key):
    folder, probabilities = truth
    for name, values in probabilities.items():
        np.savez(tmp_path / f"{name}.npz", **{key: values[:, None]})  # with a slice axis
    check(score(tmp_path, folder), expected)


def test_npy(tmp_path, truth, expected):
    folder, probabilities = truth
    for name, values in probabilities.items():
        np.save(tmp_path / f"{name}.npy", values)
    check(score(tmp_path, folder), expected)


def nifti(path, values):
    """Write (H, W) or (C, H, W) as NIfTI with columns first and channels last."""
    voxels = values.T[:, :, None] if values.ndim == 2 else values.transpose(2, 1, 0)[:, :, None]
    nibabel.save(
        nibabel.Nifti1Image(voxels.astype(np.float32), np.diag([-1.0, -1.0, 1.0, 1.0])), path
    )


def test_nifti_with_all_classes(tmp_path, truth, expected):
    folder, probabilities = truth
    for name, values in probabilities.items():
        nifti(tmp_path / f"{name}.nii.gz", values)
    check(score(tmp_path, folder), expected)


def test_nifti_with_one_file_per_class(tmp_path, truth, expected):
    folder, probabilities = truth
    for name, values in probabilities.items():
        for number in range(2):
            nifti(tmp_path / f"{name}_{number}.nii.gz", values[number])
    check(score(tmp_path, folder), expected)


@pytest.mark.parametrize(
    ("depth", "rounding"), [(np.uint8, np.rint), (np.uint8, np.floor), (np.uint16, np.rint)]
)
def test_a_picture_per_class_is_near_what_was_rounded(tmp_path, truth, expected, depth, rounding):
    folder, probabilities = truth
    top = np.iinfo(depth).max
    for name, values in probabilities.items():
        for number in range(2):
            levels = rounding(values[number] * top).astype(depth)
            Image.fromarray(levels).save(tmp_path / f"{name}_{number}.png")
    if depth is np.uint8:
        with pytest.raises(DataError, match="8-bit confidence"):
            score(tmp_path, folder)
    scored = score(tmp_path, folder, allow_quantized=True)
    check(scored, expected, tolerance=2 / top)
    assert scored.report.about["levels"] == top + 1
    assert scored.aurc_bounds is None


def test_pictures_of_classes_that_do_not_sum_to_1_are_refused(tmp_path, truth):
    folder, probabilities = truth
    for name, values in probabilities.items():
        for number in range(2):
            write_confidence(tmp_path / f"{name}_{number}.png", values[number] / 2)
    with pytest.raises(DataError, match="do not sum to 1"):
        score(tmp_path, folder)


def test_a_folder_of_maps_without_a_map(tmp_path, truth):
    for part in ("masks", "confidence"):
        (tmp_path / "maps" / part).mkdir(parents=True)
    with pytest.raises(DataError, match="no confidence map here"):
        score(tmp_path / "maps", truth[0])


def write_maps(folder, probabilities):
    for part in ("masks", "confidence"):
        (folder / part).mkdir(parents=True)
    for name, values in probabilities.items():
        write_mask(folder / "masks" / f"{name}.png", values.argmax(axis=0).astype(np.uint8))
        write_confidence(folder / "confidence" / f"{name}.png", values.max(axis=0))


def test_own_maps_are_approximate_and_say_by_how_much(tmp_path, truth, expected):
    folder, probabilities = truth
    write_maps(tmp_path / "maps", probabilities)
    scored = score(tmp_path / "maps", folder)
    check(scored, expected, tolerance=2e-5)
    low, high = scored.aurc_bounds
    assert low <= expected["aurc"] <= high
    assert low <= scored.report.metrics["all"]["strict"]["aurc"] <= high
    assert scored.report.about["levels"] == 65536


def test_eight_bits_are_refused_unless_asked_for(tmp_path, truth):
    folder, probabilities = truth
    write_maps(tmp_path / "maps", probabilities)
    for name, values in probabilities.items():
        levels = np.rint(values.max(axis=0) * 255).astype(np.uint8)
        Image.fromarray(levels).save(tmp_path / "maps/confidence" / f"{name}.png")
    with pytest.raises(DataError, match="8-bit confidence"):
        score(tmp_path / "maps", folder)
    scored = score(tmp_path / "maps", folder, allow_quantized=True)
    low, high = scored.aurc_bounds
    assert low < high
    assert scored.report.about["levels"] == 256


def test_bounds_over_ties_by_hand():
    # Four pixels of one confidence, one of them wrong: first, the risks are 1, 1/2, 1/3, 1/4;
    # last, they are 0, 0, 0, 1/4.
    metrics = ConfidenceMetrics(num_classes=2)
    metrics.update(torch.tensor([[[0.0] * 4, [1.0] * 4]]), torch.tensor([[1, 1, 1, 0]]))
    low, high = aurc_bounds(metrics.groups(), 3, 1)
    assert low == pytest.approx((1 / 4) / 4)
    assert high == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)


def test_three_classes(tmp_path):
    generator = np.random.default_rng(1)
    (tmp_path / "truth").mkdir()
    (tmp_path / "maps").mkdir()
    mask = generator.integers(0, 3, (10, 12)).astype(np.uint8)
    Image.fromarray(mask).save(tmp_path / "truth/x.png")
    logits = generator.normal(size=(3, 10, 12))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=0)
    np.save(tmp_path / "maps/x.npy", probabilities)
    scored = score(tmp_path / "maps", tmp_path / "truth", classes=3)
    flat = np.moveaxis(logits, 0, -1).reshape(-1, 3).tolist()
    check(scored, reference.evaluate(flat, mask.ravel().tolist()))


def test_ignored_pixels_do_not_count(tmp_path):
    (tmp_path / "truth").mkdir()
    mask = np.array([[0, 1, 2, 255], [255, 1, 2, 0]], np.uint8)
    Image.fromarray(mask).save(tmp_path / "truth/x.png")
    (tmp_path / "maps").mkdir()
    probabilities = np.full((3, 2, 4), 0.1)
    probabilities[1] = 0.8
    np.save(tmp_path / "maps/x.npy", probabilities)
    with pytest.raises(DataError, match="255"):
        score(tmp_path / "maps", tmp_path / "truth", classes=3)
    scored = score(tmp_path / "maps", tmp_path / "truth", classes=3, ignore_255=True)
    assert scored.report.about["pixels"] == 6
    assert scored.report.metrics["all"]["strict"]["accuracy"] == pytest.approx(2 / 6)
    with pytest.raises(ConfigError, match="in masks of two classes 255 is the foreground"):
        score(tmp_path / "maps", tmp_path / "truth", ignore_255=True)


@pytest.mark.parametrize("suffix", [".png", ".nii.gz"])
def test_levels_bound_the_nll(tmp_path, suffix):
    """Four pixels by hand: two right and a wrong one at the highest level, a wrong one below."""
    for folder in ("truth", "maps/masks", "maps/confidence"):
        (tmp_path / folder).mkdir(parents=True)
    levels = np.array([[65535, 65535, 65535, 40000]], np.uint16)
    write_mask(tmp_path / f"truth/x{suffix}", np.array([[1, 0, 1, 0]], np.uint8))
    write_mask(tmp_path / f"maps/masks/x{suffix}", np.array([[1, 0, 0, 1]], np.uint8))
    write_confidence(tmp_path / f"maps/confidence/x{suffix}", levels)
    scored = score(tmp_path / "maps", tmp_path / "truth", out=tmp_path / "report")
    low, high = scored.nll_bounds
    # The highest level holds 65534.5 to 65535, the other one 39999.5 to 40000.5.
    expected = (-np.log(0.5 / 65535) - np.log(1 - 39999.5 / 65535)) / 4
    assert low == pytest.approx(expected, rel=1e-5)
    assert high == np.inf
    value = scored.report.metrics["all"]["strict"]["nll"]
    # The middle of the highest level is 65534.75.
    middle = -2 * np.log1p(-0.25 / 65535) - np.log(0.25 / 65535) - np.log(1 - 40000 / 65535)
    assert value == pytest.approx(middle / 4, rel=1e-5)
    content = json.loads((tmp_path / "report/metrics.json").read_text())
    assert content["nll_bounds"] == [low, None]
    assert content["levels"] == 65536


def test_nll_bounds_hold_the_nll_before_rounding(tmp_path, truth, expected):
    folder, probabilities = truth
    write_maps(tmp_path / "maps", probabilities)
    low, high = score(tmp_path / "maps", folder).nll_bounds
    assert low < expected["nll"] < high < low + 1e-3


def test_groups_of_the_masks_are_resampled(tmp_path, truth):
    folder, probabilities = truth
    (tmp_path / "maps").mkdir()
    for name in NAMES:
        np.save(tmp_path / "maps" / f"{name}.npy", probabilities[name])
    alone = score(tmp_path / "maps", folder).report
    assert [row.group for row in alone.cases] == list(NAMES)
    (tmp_path / "groups.csv").write_text("image,group\na.png,p\nb.jpg,q\nc,p\nelsewhere.png,q\n")
    grouped = score(tmp_path / "maps", folder).report
    assert [row.group for row in grouped.cases] == ["p", "q", "p"]
    assert (grouped.about["resampled"], grouped.about["groups"]) == ("groups", 2)
    (tmp_path / "groups.csv").write_text("image,group\na.png,p\na.png,q\n")
    with pytest.raises(DataError, match="belongs to two groups, p and q"):
        score(tmp_path / "maps", folder)


def test_report_is_written(tmp_path, truth):
    folder, probabilities = truth
    (tmp_path / "maps").mkdir()
    for name in NAMES[:2]:
        np.save(tmp_path / "maps" / f"{name}.npy", probabilities[name])
    scored = score(tmp_path / "maps", folder, out=tmp_path / "report")
    content = json.loads((tmp_path / "report/metrics.json").read_text())
    assert content["masks_without_prediction"] == ["c"]
    assert content["pixels"] == 2 * 20 * 24
    values = scored.report.metrics["all"]["strict"]
    assert content["metrics"]["all"]["strict"]["aurc"] == values["aurc"]
    written = {path.name for path in (tmp_path / "report").iterdir()}
    assert written >= {"metrics.json", "cases.csv", "risk_coverage.png", "reliability.png"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((3, 20, 24), np.float32), "3 classes on the first axis"),
        (np.full((2, 20, 24), 0.7, np.float32), "a.npy"),
        (np.full((2, 10, 24), 0.5, np.float32), "Predictions must have the size of their masks"),
        (np.zeros((2, 20, 24), np.uint8), "Expected probabilities"),
    ],
)
def test_unusable_predictions(tmp_path, truth, values, message):
    folder, _ = truth
    np.save(tmp_path / "a.npy", values)
    with pytest.raises(DataError, match=message):
        score(tmp_path, folder)


def test_unusable_folders(tmp_path, truth):
    folder, probabilities = truth
    with pytest.raises(DataError, match="no such folder"):
        score(tmp_path / "nowhere", folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no predictions here"):
        score(tmp_path / "empty", folder)
    np.savez(tmp_path / "empty/a.npz", other=probabilities["a"])
    with pytest.raises(DataError, match="holds other"):
        score(tmp_path / "empty", folder)
    np.save(tmp_path / "lonely.npy", probabilities["a"])
    with pytest.raises(DataError, match="no mask called lonely"):
        score(tmp_path, folder)


@pytest.mark.parametrize("kind", ["npz", "nii.gz"])
def test_volumes_stored_in_another_way_than_they_are_read(tmp_path, kind):
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, (5, 6, 4)).astype(np.uint8)  # to the right, front, head
    foreground = np.where(labels == 1, 0.9, 0.2) * generator.uniform(0.5, 1, labels.shape)
    classes = np.stack([1 - foreground, foreground], axis=-1).astype(np.float32)
    for folder in ("masks", "maps"):
        (tmp_path / folder).mkdir()
    nibabel.save(nibabel.Nifti1Image(labels, np.eye(4)), tmp_path / "masks/a.nii.gz")
    if kind == "npz":  # as nnU-Net does: the axes of the file, the last one first
        np.savez(tmp_path / "maps/a.npz", probabilities=classes.T)
    else:  # on the same place with the first axis reversed
        affine = np.diag([-1.0, 1.0, 1.0, 1.0])
        affine[0, 3] = 4
        nibabel.save(nibabel.Nifti1Image(classes[::-1], affine), tmp_path / "maps/a.nii.gz")
    values = score(tmp_path / "maps", tmp_path / "masks").report.metrics["all"]["strict"]
    found = foreground > 0.5
    assert values["accuracy"] == pytest.approx(float((found == labels).mean()))
    if kind == "nii.gz":
        affine[0, 3] = 2
        nibabel.save(nibabel.Nifti1Image(classes, affine), tmp_path / "maps/a.nii.gz")
        with pytest.raises(DataError, match=r"a\.nii\.gz: lies elsewhere"):
            score(tmp_path / "maps", tmp_path / "masks")


def test_pictures_of_every_class(tmp_path):
    """Three classes: what `predict --save probabilities` wrote, alone and beside its maps."""
    rng = np.random.default_rng(5)
    for folder in ("masks", "maps/masks", "maps/confidence", "maps/probabilities"):
        (tmp_path / folder / "sub").mkdir(parents=True)
    pixels, labels = [], []
    for name in ("a", "sub/b"):
        truth = rng.integers(0, 3, (12, 15)).astype(np.uint8)
        values = rng.dirichlet([1, 1, 1], truth.shape) + 0.4 * np.eye(3)[truth]
        values = np.moveaxis(values / values.sum(axis=-1, keepdims=True), -1, 0)  # (K, H, W)
        Image.fromarray(truth).save(tmp_path / f"masks/{name}.png")
        write_mask(tmp_path / f"maps/masks/{name}.png", values.argmax(axis=0))
        write_confidence(tmp_path / f"maps/confidence/{name}.png", values.max(axis=0))
        for number in range(3):
            write_confidence(tmp_path / f"maps/probabilities/{name}_{number}.png", values[number])
        pixels += np.moveaxis(values, 0, -1).reshape(-1, 3).tolist()
        labels += truth.ravel().tolist()
    logits = [[float(np.log(p)) for p in pixel] for pixel in pixels]
    report = score(tmp_path / "maps", tmp_path / "masks", classes=3).report
    assert [row.case for row in report.cases] == ["a", "sub/b"]
    expected = reference.evaluate(logits, labels)
    values = report.metrics["all"]["strict"]
    for name in ("miou", "accuracy", "ece", "nll", "brier"):
        assert values[name] == pytest.approx(expected[name], abs=2e-4), name
