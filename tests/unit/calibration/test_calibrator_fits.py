"""ETS and vector scaling: never worse than the temperature, optima of scipy, intervals."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from segconf.calibration.calibrator_fits import fit_ensemble, fit_scaling, fit_vector
from segconf.calibration.temperature import BOUNDS, fit_temperature, temperature_interval
from tests.references import calibrators as reference

SCALES, BIASES = np.array([0.5, 1.0, 1.6]), np.array([0.4, -0.4, 0.0])


def drawn(chances, generator):
    """Labels (B, H, W) drawn from chances (B, K, H, W)."""
    below = generator.random((len(chances), 1, *chances.shape[2:])) > chances.cumsum(axis=1)
    return below.sum(axis=1).clip(max=chances.shape[1] - 1).astype(np.uint8)


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def noisy(classes=3, *, images=6, side=8, noise=0.3, seed=0):
    """Logits too large by 2.5, and labels some of which are drawn at random: ETS fits them."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1.5, (images, classes, side, side))
    chances = (1 - noise) * softmax(logits) + noise / classes
    labels = drawn(chances, generator)
    labels[0, :2] = 255
    return 2.5 * logits, labels


def shifted(*, images=12, side=16, seed=0):
    """Logits whose classes have scales and biases of their own."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1.5, (images, 3, side, side))
    chances = softmax(logits * SCALES[:, None, None] + BIASES[:, None, None])
    return logits, drawn(chances, generator)


def in_batches(logits, labels, size=4):
    def batches():
        for start in range(0, len(logits), size):
            part = slice(start, start + size)
            yield torch.from_numpy(logits[part]), torch.from_numpy(labels[part])

    return batches


def pixels_of(logits, labels):
    return [
        (logits[image, :, row, column].tolist(), int(labels[image, row, column]))
        for image, row, column in np.ndindex(labels.shape)
        if labels[image, row, column] != 255
    ]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_neither_is_worse_than_the_temperature(classes, noise, seed):
    logits, labels = noisy(classes, noise=noise, seed=seed)
    pixels, batches = pixels_of(logits, labels), in_batches(logits, labels)
    single = fit_temperature(batches)
    limit = reference.mean_nll(
        pixels, lambda z: reference.softmax([v / single.temperature for v in z])
    )
    ets, vector = fit_ensemble(batches), fit_vector(batches)
    of_ets, of_vector = ets.calibrator, vector.calibrator
    found = reference.mean_nll(
        pixels, lambda z: reference.ensemble(z, of_ets.temperature, of_ets.weights)
    )
    assert found == pytest.approx(ets.nll)
    assert found <= limit + 1e-12
    found = reference.mean_nll(
        pixels, lambda z: reference.vector(z, of_vector.scales, of_vector.biases)
    )
    assert found == pytest.approx(vector.nll)
    assert found <= limit + 1e-12
    for fit in (ets, vector):
        assert fit.nll_temperature == single.nll
        assert fit.nll_before == single.nll_before


def test_ets_finds_the_optimum_of_another_optimizer():
    logits, labels = noisy()
    pixels = pixels_of(logits, labels)

    def cost(position):
        weights = position[1:]
        return reference.mean_nll(pixels, lambda z: reference.ensemble(z, position[0], weights))

    best = min(
        (
            minimize(
                cost,
                start,
                method="SLSQP",
                bounds=[(0.05, 20), (0, 1), (0, 1), (0, 1)],
                constraints={"type": "eq", "fun": lambda position: sum(position[1:]) - 1},
            )
            for start in ([2.0, 0.8, 0.1, 0.1], [1.0, 0.4, 0.3, 0.3])
        ),
        key=lambda found: found.fun,
    )
    fit = fit_ensemble(in_batches(logits, labels))
    assert fit.nll <= best.fun + 1e-5
    assert fit.nll < fit.nll_temperature - 1e-3  # where temperature alone cannot follow
    grid = itertools.product([1, 2, 3], [0.4, 0.6, 0.8], [0.0, 0.1, 0.2])
    assert all(fit.nll <= cost([t, a, b, 1 - a - b]) for t, a, b in grid)


def test_vector_scaling_recovers_scales_and_biases():
    logits, labels = shifted(images=40)
    fit = fit_vector(in_batches(logits, labels))
    assert fit.calibrator.scales == pytest.approx(SCALES, abs=0.1)
    assert fit.calibrator.biases == pytest.approx(BIASES, abs=0.1)
    assert sum(fit.calibrator.biases) == pytest.approx(0, abs=1e-12)
    found = zip((*SCALES, *BIASES), (*fit.scale_intervals, *fit.bias_intervals), strict=True)
    assert sum(low < true < high for true, (low, high) in found) >= 5  # of 6, at 95%
    assert not fit.at_bound


def test_vector_scaling_finds_the_optimum_of_another_optimizer():
    logits, labels = shifted(images=2)
    pixels = pixels_of(logits, labels)

    def cost(position):
        return reference.mean_nll(
            pixels, lambda z: reference.vector(z, position[:3], [*position[3:], 0.0])
        )

    best = minimize(cost, [1.0] * 3 + [0.0] * 2, method="BFGS")
    fit = fit_vector(in_batches(logits, labels))
    assert fit.nll == pytest.approx(best.fun, abs=1e-7)
    assert fit.calibrator.scales == pytest.approx(best.x[:3], abs=1e-3)


def derivatives(cost, position, step=1e-4):
    """Gradient and Hessian by differences."""
    size = len(position)
    eye = step * np.eye(size)
    gradient = np.array([(cost(position + e) - cost(position - e)) / (2 * step) for e in eye])
    hessian = np.zeros((size, size))
    for i, j in np.ndindex(size, size):
        corners = [
            a * b * cost(position + a * eye[i] + b * eye[j]) for a in (1, -1) for b in (1, -1)
        ]
        hessian[i, j] = sum(corners) / (4 * step**2)
    return gradient, hessian


def test_vector_intervals_are_the_sandwich_over_groups():
    logits, labels = shifted(images=4, side=5)
    groups = ["a", "b", "a", "c"]
    fit = fit_vector(in_batches(logits, labels, size=3), groups)
    position = np.array([*fit.calibrator.scales, *fit.calibrator.biases])

    def cost_of(chosen):
        pixels = pixels_of(logits[chosen], labels[chosen])

        def cost(numbers):
            nll = reference.mean_nll(
                pixels, lambda z: reference.vector(z, numbers[:3], numbers[3:])
            )
            return nll * len(pixels)

        return cost

    _, hessian = derivatives(cost_of([0, 1, 2, 3]), position)
    slopes = [derivatives(cost_of(chosen), position)[0] for chosen in ([0, 2], [1], [3])]
    inverse = np.linalg.pinv(hessian, rcond=1e-6)
    covariance = inverse @ sum(np.outer(slope, slope) for slope in slopes) @ inverse
    expected = 1.959964 * np.sqrt(np.diag(covariance))
    found = [(high - low) / 2 for low, high in (*fit.scale_intervals, *fit.bias_intervals)]
    assert found == pytest.approx(expected, rel=1e-2)


def test_the_interval_of_the_temperature_holds_the_weights():
    logits, labels = noisy(images=4, side=5)
    weights, temperature = (0.6, 0.1, 0.3), 2.0
    low, high = temperature_interval(in_batches(logits, labels)(), temperature, mixture=weights)

    def cost_of(image):
        pixels = pixels_of(logits[image], labels[image])

        def cost(position):
            t = temperature * np.exp(position[0])
            nll = reference.mean_nll(pixels, lambda z: reference.ensemble(z, t, weights))
            return nll * len(pixels)

        return cost

    parts = [derivatives(cost_of([image]), np.zeros(1)) for image in range(4)]
    curvature = sum(hessian[0, 0] for _, hessian in parts)
    error = 1.959964 * np.sqrt(sum(slope[0] ** 2 for slope, _ in parts)) / curvature
    assert (low, high) == pytest.approx((2 * np.exp(-error), 2 * np.exp(error)), rel=1e-3)
    assert temperature_interval(in_batches(logits, labels)(), 2.0, mixture=(0, 1, 0)) == BOUNDS


def test_pixels_that_are_all_right_end_at_a_bound():
    logits = np.random.default_rng(0).normal(0, 1, (2, 3, 4, 4))
    labels = logits.argmax(axis=1).astype(np.uint8)
    fit = fit_vector(in_batches(logits, labels))
    assert np.isfinite([*fit.calibrator.scales, *fit.calibrator.biases]).all()
    assert fit.nll <= fit.nll_temperature
    assert fit_ensemble(in_batches(logits, labels)).at_bound


def test_none_fits_nothing():
    assert fit_scaling("none", in_batches(*noisy()), [str(n) for n in range(6)]) is None
