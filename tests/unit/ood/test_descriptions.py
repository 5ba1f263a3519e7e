"""Descriptions of images: moments of encoder maps, by slow loops."""

import numpy as np
import pytest
import torch

from segconf.config.schema import ModelConfig
from segconf.models.unet import build_unet
from segconf.ood.energies import description_size, moments_of
from segconf.ood.features import STAGES, chosen_stages, pooled_features


def test_moments_are_those_of_slow_loops():
    generator = np.random.default_rng(0)
    maps = [generator.normal(3, 1, (2, channels, 5, 4)) for channels in (3, 2, 4, 5, 6)]
    found = pooled_features([torch.from_numpy(part).float() for part in maps]).double().numpy()
    channels = (2, 4, 5)  # the stages 1 to 3
    assert found.shape == (2, description_size(channels))
    for stage, moments in zip(maps[1:4], moments_of(found, channels), strict=True):
        for number, image in enumerate(stage):
            pixels = image.reshape(len(image), -1)
            products = np.zeros((len(image), len(image)))
            for axis, pairs in ((1, 4 * 4), (2, 5 * 3)):
                steps = np.diff(image, axis=axis).reshape(len(image), -1)
                products += sum(np.outer(step, step) for step in steps.T) / pairs
            assert moments.mean[number] == pytest.approx(pixels.mean(axis=1), rel=1e-5)
            expected = np.cov(pixels, bias=True)
            assert moments.covariance[number] == pytest.approx(expected, rel=1e-4, abs=1e-5)
            assert moments.difference[number] == pytest.approx(products, rel=1e-4, abs=1e-5)


def test_stages_are_those_at_a_half_a_quarter_and_an_eighth_of_the_grid():
    network = build_unet(ModelConfig(encoder="resnet18", encoder_weights="none"))
    with torch.no_grad():
        maps = network.eval().encoder(torch.zeros(1, 3, 64, 96))
    sizes = [tuple(maps[stage].shape[2:]) for stage in STAGES]
    assert sizes == [(32, 48), (16, 24), (8, 12)]
    # 64, 64 and 128 channels: every second one of the last stage.
    assert [stage.shape[1] for stage in chosen_stages(maps)] == [64, 64, 64]
    torch.testing.assert_close(chosen_stages(maps)[2], maps[3][:, ::2])


def test_few_stages_and_single_pixels_are_described_too():
    maps = [torch.full((1, 1, 1, 1), float(number)) for number in range(3)]
    # Mean, variance and differences of each: a single pixel has neither of the two.
    assert pooled_features(maps).tolist() == [[1.0, 0.0, 0.0, 2.0, 0.0, 0.0]]
    assert pooled_features(maps[:1]).tolist() == [[0.0, 0.0, 0.0]]
    assert pooled_features(maps[2]).tolist() == [[2.0, 0.0, 0.0]]
