"""The out-of-distribution detector: features, shrinkage and distance, each computed another way."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.covariance import ledoit_wolf

from segconf.config.schema import ModelConfig
from segconf.errors import CheckpointError
from segconf.models.unet import build_unet
from segconf.ood.detector import (
    FILE_NAME,
    FORMAT,
    OODDetector,
    load_detector,
    save_detector,
    shrunk_covariance,
)
from segconf.ood.features import STAGES, feature_grid, pooled_features, spread

GRID = (192, 256)
HASH = "ab" * 32


def test_features_are_the_means_of_two_stages_or_of_the_deepest():
    maps = [torch.full((1, 2, 1, 1), float(number)) for number in range(6)]
    maps[3] = torch.tensor([[[[1.0, 3.0]], [[0.0, 8.0]]]])
    assert pooled_features(maps).tolist() == [[2.0, 4.0, 4.0, 4.0]]
    assert pooled_features(maps[:4]).tolist() == [[2.0, 4.0]]
    assert pooled_features(maps[:3]).tolist() == [[2.0, 2.0]]
    assert pooled_features(maps[3]).tolist() == [[2.0, 4.0]]


def test_features_of_a_unet_encoder_are_those_at_an_eighth_and_a_sixteenth_of_the_grid():
    network = build_unet(ModelConfig(encoder="resnet18", encoder_weights="none"))
    with torch.no_grad():
        maps = network.eval().encoder(torch.zeros(1, 3, 64, 96))
    assert [tuple(maps[stage].shape[2:]) for stage in STAGES] == [(8, 12), (4, 6)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((64, 96), (256, 320)),
        ((192, 255), (256, 320)),
        ((192, 256), (192, 256)),
        ((256, 192), (256, 192)),
        ((512, 640), (512, 640)),
    ],
)
def test_images_are_not_described_on_a_coarse_grid(size, expected):
    assert feature_grid(size) == expected


def test_images_are_spread_evenly():
    assert list(spread(list(range(10)), 4)) == [0, 2, 5, 7]
    assert list(spread(list(range(3)), 4)) == [0, 1, 2]
    assert list(spread([], 4)) == []


def test_image_between_the_training_images_is_far():
    # Both features of the image are usual; together they are not: it lies across the line that
    # the training images follow, and nearer to their mean than most of them.
    generator = np.random.default_rng(4)
    along = generator.normal(size=(2, 100, 1))
    images = torch.from_numpy(along + 0.05 * generator.normal(size=(2, 100, 2)))
    detector = OODDetector.fit(images[0], images[1], GRID)
    across, usual = detector.score(torch.tensor([[0.4, -0.4], [1.5, 1.5]]))
    assert across > detector.threshold > usual


def test_detector_of_another_version_is_refused(tmp_path):
    tensors = {"mean": torch.zeros(4), "whitening": torch.eye(4)}
    for metadata in ({"format": "segconf ood 3"}, {"other": "text"}):
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


def test_distance_worked_by_hand():
    # Two independent features of variance 1 and 4 around (0, 10). Standardised, the sample
    # covariance is the identity, which shrinkage does not change.
    training = torch.tensor([[1.0, 12.0], [1.0, 8.0], [-1.0, 12.0], [-1.0, 8.0]])
    detector = OODDetector.fit(training, training, GRID)
    found = detector.score(torch.tensor([[0.0, 10.0], [3.0, 10.0], [0.0, 18.0], [3.0, 18.0]]))
    assert found == pytest.approx([0, 3, 4, 5], abs=1e-4)


def test_distance_agrees_with_the_inverse_covariance():
    generator = np.random.default_rng(1)
    training = generator.normal(size=(15, 6)) @ generator.normal(size=(6, 6)) + 3
    inputs = generator.normal(size=(4, 6)) * 5
    mean, scale = training.mean(axis=0), training.std(axis=0)
    covariance, _ = ledoit_wolf((training - mean) / scale, assume_centered=True)
    inverse = np.linalg.inv(covariance)
    expected = [np.sqrt(z @ inverse @ z) for z in (inputs - mean) / scale]
    detector = OODDetector.fit(torch.from_numpy(training), torch.from_numpy(training), GRID)
    assert detector.score(torch.from_numpy(inputs)) == pytest.approx(expected, rel=1e-4)


def test_threshold_is_the_quantile_of_the_validation_images():
    training = torch.tensor([[1.0], [-1.0]])
    detector = OODDetector.fit(training, torch.arange(1.0, 101.0)[:, None], GRID)
    # The 96th of 100 distances: four images lie above it.
    assert detector.threshold == pytest.approx(96, rel=1e-4)
    assert (detector.false_alarm_rate, detector.validation_images) == (0.04, 100)


def test_features_that_never_vary_do_not_divide_by_zero():
    detector = OODDetector.fit(torch.ones(5, 3), torch.ones(4, 3), GRID)
    own, other = detector.score(torch.tensor([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0]]))
    assert own == 0
    assert other > 1e3
    assert np.isfinite(other)


def test_file_round_trip_and_damage(tmp_path):
    assert load_detector(tmp_path, HASH) is None
    training, validation = torch.randn(9, 4), torch.randn(5, 4)
    expected = OODDetector.fit(training, validation, GRID)
    save_detector(tmp_path / FILE_NAME, expected, HASH)
    loaded = load_detector(tmp_path / "best.safetensors", HASH)
    assert loaded is not None
    assert loaded.threshold == expected.threshold
    assert (loaded.grid, loaded.validation_images) == (GRID, 5)
    assert loaded.false_alarm_rate == expected.false_alarm_rate
    assert np.array_equal(loaded.score(validation), expected.score(validation))
    (tmp_path / FILE_NAME).write_bytes(b"nothing")
    with pytest.raises(
        CheckpointError, match=r"not a readable safetensors file.*no out-of-distribution detection"
    ):
        load_detector(tmp_path, HASH)


def test_detector_of_other_weights_is_refused_with_the_command(tmp_path):
    detector = OODDetector.fit(torch.randn(9, 4), torch.randn(5, 4), GRID)
    save_detector(tmp_path / FILE_NAME, detector, "cd" * 32)
    with pytest.raises(CheckpointError) as refusal:
        load_detector(tmp_path, HASH)
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path / FILE_NAME}: belongs to other weights")
    assert f"segconf train --resume {tmp_path}" in message


@pytest.mark.parametrize("gone", ["mean", "whitening", "grid", "threshold", "validation_images"])
def test_detector_without_all_its_numbers_is_refused(tmp_path, gone):
    path = tmp_path / FILE_NAME
    save_detector(path, OODDetector.fit(torch.randn(9, 4), torch.randn(5, 4), GRID), HASH)
    tensors = load_file(path)
    del tensors[gone]
    save_file(tensors, path, metadata={"format": FORMAT, "weights_sha256": HASH})
    with pytest.raises(CheckpointError, match=r"not the statistics of a detector.*train --resume"):
        load_detector(tmp_path, HASH)


def test_features_of_another_network_are_refused():
    generator = torch.Generator().manual_seed(0)
    detector = OODDetector.fit(*torch.randn(2, 9, 4, generator=generator), GRID)
    with pytest.raises(CheckpointError, match=r"has 4 features .* has 5.*other weights.*remove"):
        detector.score(torch.zeros(2, 5))
