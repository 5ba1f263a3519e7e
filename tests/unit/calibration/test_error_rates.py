"""Error rates: pooled bins by hand and against scikit-learn, and the scale that follows."""

import numpy as np
import pytest
import torch
from sklearn.isotonic import IsotonicRegression

from segconf.calibration.error_rates import ErrorRates, scale_of, supposed_scale
from segconf.calibration.isotonic import BIN_WIDTH, fit_error_rates, pool_adjacent_violators
from segconf.metrics.streaming import ConfidenceMetrics


def counted(log_odds, wrong, classes=2):
    """Metrics of pixels whose confidence has these log-odds, some of them wrong."""
    metrics = ConfidenceMetrics(num_classes=classes)
    others = torch.full((classes - 1, len(log_odds)), -np.log(classes - 1))
    logits = torch.cat([torch.as_tensor(log_odds)[None], others]).float()  # class 0 is predicted
    labels = torch.as_tensor(np.asarray(wrong), dtype=torch.uint8)
    metrics.update(logits[None], labels[None])
    return metrics


def test_pools_worked_by_hand():
    # Rates 1/2, 1/10, 3/10, 0: the second and third rise, so they are one pool of 4 in 20.
    first, wrong, pixels = pool_adjacent_violators([5, 1, 3, 0], [10, 10, 10, 10])
    assert (first, wrong, pixels) == ([0, 1, 3], [5, 4, 0], [10, 20, 10])
    # A rise that is larger than all before it swallows them, step by step.
    assert pool_adjacent_violators([3, 2, 9], [10, 10, 10]) == ([0], [14], [30])
    # Equal rates are one pool.
    assert pool_adjacent_violators([1, 2], [10, 20]) == ([0], [3], [30])


@pytest.mark.parametrize("seed", range(4))
def test_pools_are_the_isotonic_regression_of_scikit_learn(seed):
    generator = np.random.default_rng(seed)
    pixels = generator.integers(1, 50, 60)
    wrong = generator.binomial(pixels, np.linspace(0.6, 0.05, 60))
    starts, errors, counts = pool_adjacent_violators(wrong, pixels)
    sizes = np.diff([*starts, 60])
    found = np.repeat(np.array(errors) / np.array(counts), sizes)
    expected = IsotonicRegression(increasing=False).fit_transform(
        np.arange(60), wrong / pixels, sample_weight=pixels
    )
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("classes", [2, 3])
def test_fitted_rates_are_those_of_a_slow_count(classes):
    generator = np.random.default_rng(classes)
    log_odds = generator.gamma(2, 2, 5000).astype(np.float32)
    wrong = generator.random(5000) < 1 / (1 + np.exp(0.8 * log_odds))
    rates = fit_error_rates(counted(log_odds, wrong, classes).groups(), classes)
    shifted = log_odds + np.float32(np.log(classes - 1))
    confidence = 1 / (1 + np.exp(-log_odds.astype(np.float64)))
    assert rates.confidence[0] == pytest.approx(1 / classes)
    assert sum(rates.pixels) == 5000
    assert sum(rates.wrong) == wrong.sum()
    for number, lower in enumerate(rates.confidence):
        upper = [*rates.confidence, 2.0][number + 1]
        # Bins are cut in the ranking value; leave out what rounding could move across an edge.
        edge = np.abs(shifted / BIN_WIDTH - np.rint(shifted / BIN_WIDTH)) < 1e-4
        inside = (confidence >= lower) & (confidence < upper)
        assert abs(inside.sum() - rates.pixels[number]) <= edge.sum()
        assert abs(wrong[inside].sum() - rates.wrong[number]) <= edge.sum()
    fractions = np.array(rates.wrong) / np.array(rates.pixels)
    assert (np.diff(fractions) < 0).all()


RATES = ErrorRates((0.5, 0.7, 0.9, 0.99), (10, 10, 40, 940), (5, 3, 4, 5))


def test_levels_worked_by_hand():
    # Rates 1/2, 3/10, 1/10, 1/188.
    assert RATES.level(0.5) == 0.5  # nothing is wrong more often
    assert RATES.level(0.25) == 0.9
    assert RATES.level(0.1) == 0.9  # exactly one in ten is not more
    assert RATES.level(0.05) == 0.99
    assert RATES.level(0.001) == 1.0  # even the surest pixels are wrong more often
    assert RATES.fraction_below(0.9) == pytest.approx(0.02)


def test_scale_has_the_steps_that_can_be_kept():
    scale = scale_of(RATES, 2)
    assert (scale.striped_times, scale.shaded_times, scale.measured) == (4, 10, True)
    assert (scale.striped, scale.shaded) == (0.9, 0.9)
    # 1 in 188 is wrong at the top: 1 in 200 would shade everything.
    assert [step.times for step in scale.steps] == [2, 4, 10, 20, 50, 100]
    assert scale.level(20) == 0.99


def test_most_of_the_picture_is_never_shaded():
    poor = ErrorRates((0.5, 0.8, 0.95), (10, 60, 30), (5, 12, 1))
    # Wrong more than 1 in 10: 70% of the pixels. More than 1 in 4: 10%.
    scale = scale_of(poor, 2)
    assert (scale.striped_times, scale.shaded_times) == (2, 4)
    assert (scale.striped, scale.shaded) == (0.5, 0.8)
    hopeless = ErrorRates((0.5, 0.8), (60, 40), (24, 12))
    scale = scale_of(hopeless, 2)
    assert (scale.striped_times, scale.shaded_times, scale.shaded) == (2, 2, 0.5)


def test_confidence_that_was_not_measured_is_taken_at_its_word():
    scale = supposed_scale(3)
    assert not scale.measured
    assert scale.level(2) == 0.5
    assert scale.level(4) == 0.75
    assert supposed_scale(2).level(2) == 0.5
