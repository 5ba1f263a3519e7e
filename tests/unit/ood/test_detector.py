"""The out-of-distribution detector: features, shrinkage and distance, each computed another way."""

from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.covariance import ledoit_wolf

from segconf.data.cases import Case
from segconf.errors import CheckpointError
from segconf.ood.detector import (
    FILE_NAME,
    FORMAT,
    Described,
    OODDetector,
    load_detector,
    save_detector,
    shrunk_covariance,
    upper_quantile,
)
from segconf.ood.features import band_of, feature_grid, pooled_features, spread

GRID = BAND = (128, 160)
HASH = "ab" * 32


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((64, 96), (128, 160)),
        ((96, 127), (128, 160)),
        ((96, 128), (96, 128)),
        ((192, 256), (192, 256)),
        ((256, 192), (256, 192)),
        ((193, 256), (128, 160)),
    ],
)
def test_images_are_described_on_a_grid_of_moderate_size(size, expected):
    assert feature_grid(size, "segmentation") == expected
    assert feature_grid(size, "classification") == size


def test_the_band_is_no_finer_than_the_coarsest_images(tmp_path):
    cases = []
    for number, size in enumerate([(300, 90), *[(200, 100)] * 38, (20, 20)]):
        path = tmp_path / f"{number:02d}.png"
        PIL.Image.new("L", size[::-1]).save(path)
        cases.append(Case(path.stem, path, None))
    # Of 40 images the 5% quantile, rounded up, is the third: neither the thumbnail nor the 90.
    assert band_of(cases, (128, 160)) == (128, 100)
    assert band_of(cases[:1], (128, 160)) == (128, 90)
    assert band_of([], (128, 160)) == (128, 160)


def test_images_are_spread_evenly():
    assert list(spread(list(range(10)), 4)) == [0, 2, 5, 7]
    assert list(spread(list(range(3)), 4)) == [0, 1, 2]
    assert list(spread([], 4)) == []


def images(count, seed, *, mixing=None, contrast=1.0):
    """Feature maps (N, 3, 6, 8) of random images, channels mixed by a matrix."""
    generator = np.random.default_rng(seed)
    maps = (
        contrast
        * generator.normal(size=(count, 3, 6, 8))
        * generator.uniform(0.5, 1.5, (count, 1, 1, 1))
    )
    mixed = maps if mixing is None else np.einsum("dc,nchw->ndhw", mixing, maps)
    return torch.from_numpy(mixed).float()


def fitted(training, validation):
    """Detector of feature maps (N, C, h, w) of one stage, each image seen once."""
    parts = (pooled_features(part)[:, None] for part in (training, validation))
    return OODDetector.fit(*parts, Described(GRID, BAND, (training.shape[1],)))


MIXING = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.5, 0.0, 0.2]])


def test_a_usual_contrast_in_an_unusual_direction_is_far():
    # Every channel of the image has a usual variance, but they are not mixed as they should be.
    training, validation = images(200, 0, mixing=MIXING), images(100, 1, mixing=MIXING)
    detector = fitted(training, validation)
    scale = training.std(dim=(0, 2, 3)).numpy()
    other = detector.score(pooled_features(images(10, 2, mixing=np.diag(scale))))
    usual = detector.score(pooled_features(images(50, 3, mixing=MIXING)))
    assert other.min() > detector.threshold
    assert np.mean(usual > detector.threshold) < 0.2


def test_distance_agrees_with_energies_of_whitened_pixels():
    training, others = images(40, 0, mixing=MIXING), images(5, 1, mixing=2 * MIXING)
    detector = fitted(training, training)

    # All pixels of the training images, whitened by their covariance and a ridge.
    pixels = training.double().numpy().transpose(0, 2, 3, 1).reshape(-1, 3)
    centre, covariance = pixels.mean(axis=0), np.cov(pixels.T, bias=True)
    covariance += (1e-4 * np.trace(covariance) / 3 + 1e-12) * np.eye(3)
    values, vectors = np.linalg.eigh(covariance)
    whitening = vectors / np.sqrt(values)

    def log_energies(maps):
        rows = []
        for image in maps.double().numpy():
            white = np.einsum("cd,chw->dhw", whitening, image - centre[:, None, None])
            own = (white**2).mean(axis=(1, 2))
            texture = (np.diff(white, axis=1) ** 2).mean(axis=(1, 2))
            texture += (np.diff(white, axis=2) ** 2).mean(axis=(1, 2))
            rows.append(np.log(np.append(own, texture) + 1e-6))
        return np.array(rows)

    known = log_energies(training)
    mean, scale = known.mean(axis=0), known.std(axis=0) + 1e-3
    shrunk, _ = ledoit_wolf((known - mean) / scale, assume_centered=True)
    inverse = np.linalg.inv(shrunk)
    expected = [np.sqrt(z @ inverse @ z) for z in (log_energies(others) - mean) / scale]
    assert detector.score(pooled_features(others)) == pytest.approx(expected, rel=2e-3)


def test_detector_of_another_version_is_refused(tmp_path):
    tensors = {"mean": torch.zeros(4), "whitening": torch.eye(4)}
    for metadata in ({"format": "segconf ood 4"}, {"other": "text"}):
        save_file(tensors, tmp_path / FILE_NAME, metadata=metadata)
        with pytest.raises(CheckpointError, match=r"another way. Remove it, .*train --resume"):
            load_detector(tmp_path, HASH)


@pytest.mark.parametrize(("count", "size"), [(60, 5), (12, 30)])
def test_shrinkage_is_that_of_scikit_learn(count, size):
    generator = np.random.default_rng(0)
    values = generator.normal(size=(count, size)) @ generator.normal(size=(size, size))
    centred = values - values.mean(axis=0)
    expected, weight = ledoit_wolf(centred, assume_centered=True)
    assert 0 < weight < 1
    assert shrunk_covariance(centred) == pytest.approx(expected)


def test_threshold_is_the_quantile_of_the_validation_images():
    training, validation = images(60, 0), images(100, 1)
    detector = fitted(training, validation)
    scores = np.sort(detector.score(pooled_features(validation)))
    # The 96th of 100 distances: four lie above it.
    assert detector.threshold == scores[95]
    assert (detector.false_alarm_rate, detector.validation_images) == (0.04, 100)
    two_views = pooled_features(validation).reshape(50, 2, -1)
    described = Described(GRID, BAND, (3,))
    again = OODDetector.fit(pooled_features(training)[:, None], two_views, described)
    assert again.threshold == detector.threshold  # every view counts
    assert again.validation_images == 50


def test_maps_that_never_vary_do_not_divide_by_zero():
    flat = torch.ones(5, 3, 4, 4)
    detector = fitted(flat, flat)
    own, other = detector.score(pooled_features(torch.stack([flat[0], 2 * flat[0]])))
    assert own <= detector.threshold < other / 1000
    assert np.isfinite(other)


def test_file_round_trip_and_damage(tmp_path):
    assert load_detector(tmp_path, HASH) is None
    validation = pooled_features(images(5, 1))
    known = pooled_features(images(9, 0))[:, None]
    described = Described(GRID, (100, 90), (3,))
    expected = OODDetector.fit(known, validation[:, None], described)
    save_detector(tmp_path / FILE_NAME, expected, HASH)
    loaded = load_detector(tmp_path / "best.safetensors", HASH)
    assert loaded is not None
    assert loaded.threshold == expected.threshold
    assert (loaded.grid, loaded.band, loaded.validation_images) == (GRID, (100, 90), 5)
    assert loaded.false_alarm_rate == expected.false_alarm_rate
    assert np.array_equal(loaded.score(validation), expected.score(validation))
    (tmp_path / FILE_NAME).write_bytes(b"nothing")
    with pytest.raises(
        CheckpointError, match=r"not a readable safetensors file.*no out-of-distribution detection"
    ):
        load_detector(tmp_path, HASH)


def test_detector_of_other_weights_is_refused_with_the_command(tmp_path):
    detector = fitted(images(9, 0), images(5, 1))
    save_detector(tmp_path / FILE_NAME, detector, "cd" * 32)
    with pytest.raises(CheckpointError) as refusal:
        load_detector(tmp_path, HASH)
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path / FILE_NAME}: belongs to other weights")
    assert f"segconf train --resume {tmp_path}" in message


@pytest.mark.parametrize(
    "gone", ["mean", "whitening", "whitening.0", "grid", "band", "threshold", "validation_images"]
)
def test_detector_without_all_its_numbers_is_refused(tmp_path, gone):
    path = tmp_path / FILE_NAME
    save_detector(path, fitted(images(9, 0), images(5, 1)), HASH)
    tensors = load_file(path)
    del tensors[gone]
    save_file(tensors, path, metadata={"format": FORMAT, "weights_sha256": HASH})
    with pytest.raises(CheckpointError, match=r"not the statistics of a detector.*train --resume"):
        load_detector(tmp_path, HASH)


def test_features_of_another_network_are_refused():
    detector = fitted(images(9, 0), images(5, 1))
    # 3 means and twice 9 products.
    with pytest.raises(
        CheckpointError, match=r"takes 21 numbers .* gives 5.*other weights.*remove"
    ):
        detector.score(torch.zeros(2, 5))


def test_quantile_of_equal_weights_is_that_of_numpy():
    generator = np.random.default_rng(0)
    for count in (1, 2, 19, 20, 21, 41, 100):
        values = generator.normal(size=count).round(1)
        expected = np.quantile(values, 0.95, method="higher")
        assert upper_quantile(values, np.full(count, 0.3), 0.95) == expected, count


def test_every_group_counts_alike_in_the_threshold():
    # Four images of one patient weigh as much as one of another. Below 3 lie 1 + 2 / 4 of the other
    # 2 + 3 / 4 weights, 0.55; below 4 lie 1 + 3 / 4 of them, 0.64; below 7 lies everything.
    values = np.array([1.0, 2.0, 3.0, 4.0, 0.5, 7.0])
    weights = np.array([0.25, 0.25, 0.25, 0.25, 1.0, 1.0])
    assert upper_quantile(values, weights, 0.6) == 4.0
    assert upper_quantile(values, np.ones(6), 0.6) == 3.0
    assert upper_quantile(values, weights, 0.95) == 7.0


def test_the_threshold_is_that_of_whole_volumes():
    training, validation = images(60, 1), images(12, 2)
    cases = [
        Case(f"v{number // 4}_z{number % 4:03d}", Path(f"v{number // 4}.nii"), None, number % 4)
        for number in range(12)
    ]
    parts = (pooled_features(part)[:, None] for part in (training, validation))
    detector = OODDetector.fit(*parts, Described(GRID, BAND, (3,)), cases)
    scores = detector.score(pooled_features(validation))
    assert detector.threshold == pytest.approx(scores.reshape(3, 4).mean(axis=1).max())
    assert (detector.validation_images, detector.false_alarm_rate) == (3, 0.0)
    assert detector.threshold < fitted(training, validation).threshold
