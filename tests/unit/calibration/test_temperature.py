"""The temperature of synthetic logits is known, and its NLL follows from a few pixels by hand."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from segconf.calibration.temperature import (
    BOUNDS,
    WrittenBatches,
    fit_temperature,
    mean_nll,
    temperature_interval,
)
from segconf.errors import DataError


def calibrated(classes, *, images=6, side=64, seed=0):
    """Logits (B, K, H, W), and labels that are drawn from their softmax."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1.5, (images, classes, side, side))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    below = generator.random((images, 1, side, side)) > chances.cumsum(axis=1)
    return logits, below.sum(axis=1).clip(max=classes - 1).astype(np.uint8)


def in_batches(logits, labels, size=4):
    def batches():
        for start in range(0, len(logits), size):
            part = slice(start, start + size)
            yield torch.from_numpy(logits[part]).float(), torch.from_numpy(labels[part])

    return batches


def slow_nll(logits, labels, temperature):
    """Mean over the pixels that are annotated, one after the other."""
    costs = []
    for image, truth in zip(logits, labels, strict=True):
        for row, column in np.ndindex(truth.shape):
            if truth[row, column] != 255:
                scaled = image[:, row, column] / temperature
                chance = np.exp(scaled - scaled.max())
                costs.append(-math.log(chance[truth[row, column]] / chance.sum()))
    return math.fsum(costs) / len(costs)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0])
def test_the_scale_of_the_logits_is_recovered(classes, scale):
    logits, labels = calibrated(classes)
    fit = fit_temperature(in_batches(scale * logits, labels))
    # 24576 labels drawn at random tell the temperature to about one percent.
    assert fit.temperature == pytest.approx(scale, rel=0.04)
    assert not fit.at_bound
    unscaled = fit_temperature(in_batches(logits, labels)).temperature
    assert fit.temperature == pytest.approx(scale * unscaled, rel=1e-4)


def test_the_minimum_is_that_of_a_slow_search():
    logits, labels = calibrated(3, images=2, side=12)
    labels[:, :3] = 255
    logits *= 2
    fit = fit_temperature(in_batches(logits, labels))
    slow = minimize_scalar(
        lambda t: slow_nll(logits, labels, t), bracket=(1, 2), options={"xtol": 1e-7}
    )
    assert fit.temperature == pytest.approx(slow.x, rel=1e-4)
    assert fit.nll == pytest.approx(slow.fun, rel=1e-6)
    assert fit.passes <= 12


def test_ignored_pixels_do_not_count():
    logits, labels = calibrated(2, images=2)
    reference = fit_temperature(in_batches(logits[:, :, :32], labels[:, :32]))
    logits[:, :, 32:] *= 50
    labels[:, 32:] = 255
    fit = fit_temperature(in_batches(logits, labels))
    assert fit.temperature == pytest.approx(reference.temperature, rel=1e-6)


def test_nll_of_two_pixels_worked_by_hand():
    # Log-odds 2 for the right class and 4 for the wrong one, at T = 2: log(1 + 1/e), log(1 + e^2).
    logits = torch.tensor([[[[0.0, 4.0]], [[2.0, 0.0]]]])
    nll, _ = mean_nll([(logits, torch.ones(1, 1, 2, dtype=torch.uint8))], 2.0)
    assert nll == pytest.approx((math.log(1 + math.exp(-1)) + math.log(1 + math.exp(2))) / 2)


def test_the_slope_is_the_derivative():
    logits, labels = calibrated(3, images=1, side=8)
    batch = [(torch.from_numpy(logits), torch.from_numpy(labels))]
    step = 1e-5
    above, below = (mean_nll(batch, 1.7 * math.exp(s))[0] for s in (step, -step))
    assert mean_nll(batch, 1.7)[1] == pytest.approx((above - below) / (2 * step), rel=1e-6)


@pytest.mark.parametrize(("right", "bound"), [(True, BOUNDS[0]), (False, BOUNDS[1])])
def test_without_a_minimum_the_search_ends_at_a_bound(right, bound):
    logits, _ = calibrated(2, images=1)
    labels = (logits.argmax(axis=1) == right).astype(np.uint8)
    fit = fit_temperature(in_batches(logits, labels))
    assert fit.temperature == bound
    assert fit.at_bound


def test_what_cannot_be_fitted_is_refused():
    logits, labels = calibrated(2, images=1, side=4)
    with pytest.raises(DataError, match="nothing to fit"):
        fit_temperature(in_batches(logits, np.full_like(labels, 255)))
    logits[0, 0, 0, 0] = np.nan
    with pytest.raises(DataError, match="not finite"):
        fit_temperature(in_batches(logits, labels))


def test_the_interval_is_the_sandwich_of_finite_differences():
    """Slopes image by image, and the curvature of their sum, from the slow NLL alone."""
    logits, labels = calibrated(3, images=5, side=8)
    logits *= np.array([0.5, 1, 1.5, 2, 3])[:, None, None, None]  # images that disagree
    labels[:, :2] = 255
    labels[1, :5] = 255  # images count by their pixels
    fit = fit_temperature(in_batches(logits, labels, size=2))

    def total(number, shift):
        pixels = (labels[number] != 255).sum()
        part = slice(number, number + 1)
        return pixels * slow_nll(logits[part], labels[part], fit.temperature * math.exp(shift))

    step = 1e-3
    slopes = [(total(n, step) - total(n, -step)) / (2 * step) for n in range(5)]
    curvature = sum(
        (total(n, step) - 2 * total(n, 0) + total(n, -step)) / step**2 for n in range(5)
    )
    assert sum(slopes) == pytest.approx(0, abs=1e-2)  # the minimum
    error = 1.96 * math.sqrt(sum(slope**2 for slope in slopes)) / curvature
    expected = [fit.temperature * math.exp(sign * error) for sign in (-1, 1)]
    assert fit.interval == pytest.approx(expected, rel=1e-4)
    again = temperature_interval(in_batches(logits, labels, size=5)(), fit.temperature)
    assert again == pytest.approx(fit.interval, rel=1e-9)


def test_slices_of_a_group_count_as_one_unit():
    logits, labels = calibrated(3, images=6, side=8)
    logits *= np.array([0.5, 1, 1.5, 2, 3, 0.8])[:, None, None, None]
    fit = fit_temperature(in_batches(logits, labels, size=4), groups="aabbba")
    # The same pixels as three images, each as long as its group.
    order = [[0, 1, 5], [2, 3, 4]]
    joined = np.stack([np.concatenate(logits[own], axis=1) for own in order])
    masks = np.stack([np.concatenate(labels[own], axis=0) for own in order])
    expected = temperature_interval(in_batches(joined, masks)(), fit.temperature)
    assert fit.interval == pytest.approx(expected, rel=1e-9)
    alone = fit_temperature(in_batches(logits, labels, size=4))
    assert alone.temperature == fit.temperature
    assert alone.interval != pytest.approx(fit.interval, rel=1e-3)


def test_the_interval_is_that_of_a_bootstrap_over_images():
    generator = np.random.default_rng(3)
    logits, labels = calibrated(2, images=40, side=6)
    logits *= generator.uniform(0.6, 3, (40, 1, 1, 1))
    fit = fit_temperature(in_batches(logits, labels))
    right = np.where(labels == 1, 1, -1) * (logits[:, 1] - logits[:, 0])  # log-odds of the truth

    def refitted(picks):
        margins = right[picks]
        found = minimize_scalar(
            lambda t: np.logaddexp(0, -margins / math.exp(t)).sum(), bracket=(0, 0.5)
        )
        return math.exp(found.x)

    assert fit.temperature == pytest.approx(refitted(np.arange(40)), rel=1e-4)
    resampled = [refitted(generator.integers(40, size=40)) for _ in range(600)]
    low, high = np.quantile(resampled, [0.025, 0.975])
    # Pixels as units would give 0.6 of this width.
    assert math.log(fit.interval[1] / fit.interval[0]) == pytest.approx(
        math.log(high / low), rel=0.15
    )
    assert fit.interval[0] < fit.temperature < fit.interval[1]


def test_logits_that_say_nothing_leave_the_temperature_open():
    logits, labels = np.zeros((2, 2, 4, 4)), np.zeros((2, 4, 4), np.uint8)
    assert temperature_interval(in_batches(logits, labels)(), 1.0) == BOUNDS


def test_written_batches_are_made_once_and_stay_the_same():
    logits, labels = calibrated(3, images=5, side=4)
    made = []

    def batches():
        for batch in in_batches(logits, labels)():
            made.append(len(batch[1]))
            yield batch

    with WrittenBatches(batches) as written:
        for _ in range(3):
            passed = list(written())
            assert [len(part[1]) for part in passed] == [4, 1]
            for place, expected in enumerate((logits.astype(np.float32), labels)):
                got = torch.cat([part[place] for part in passed]).numpy()
                np.testing.assert_array_equal(got, expected)
    assert made == [4, 1]
    with pytest.raises(ValueError, match="closed"):
        next(written())


def test_a_full_temporary_folder_is_named(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with (
        WrittenBatches(in_batches(*calibrated(2, images=1, side=4))) as written,
        pytest.raises(DataError, match=r"No space left on device.*TMPDIR"),
    ):
        list(written())
