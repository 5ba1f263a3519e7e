"""The curve of the expected Dice: by hand, by another optimizer, and where there is none."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from segconf.calibration.dice_scale import StoredDiceScale, fit_dice_scale

COUNTS = {"images": 40, "groups": 40}


def scale(intercept, slope):
    return StoredDiceScale(
        intercept=intercept, slope=slope, error_before=0.1, error=0.05, images=40
    )


def too_low(count=40, seed=0):
    """Expected Dice, and the Dice that was reached: odds twice as good, and noise."""
    generator = np.random.default_rng(seed)
    expected = generator.uniform(0.3, 0.95, count)
    odds = 2 * expected / (1 - expected) * np.exp(generator.normal(0, 0.3, count))
    return expected, odds / (1 + odds)


def test_odds_are_multiplied_and_raised_worked_by_hand():
    # Odds of 0.75 are 3. Twice that is 6 of 7; 3 squared is 9 of 10.
    assert scale(math.log(2), 1).of(0.75) == pytest.approx(6 / 7)
    assert scale(0, 2).of(0.75) == pytest.approx(9 / 10)
    assert scale(0, 1).of(0.31) == pytest.approx(0.31)


def test_certain_values_and_those_that_are_not_defined_stay():
    steep = scale(800, 900)
    assert [steep.of(value) for value in (0.0, 1.0)] == [0, 1]
    assert math.isnan(steep.of(math.nan))
    assert steep.of(1e-9) == pytest.approx(0)
    assert steep.of(0.9) == pytest.approx(1)


def test_the_fit_is_that_of_a_logistic_regression_with_fractions_as_weights():
    expected, dice = too_low(4000)
    found = fit_dice_scale(expected, dice, COUNTS)
    features = np.log(expected / (1 - expected))[:, None]
    other = LogisticRegression(C=np.inf, tol=1e-10).fit(
        np.concatenate([features, features]),
        np.repeat([1, 0], len(dice)),
        sample_weight=np.concatenate([dice, 1 - dice]),
    )
    # The shrinkage is worth a single image of 4000.
    assert found.intercept == pytest.approx(other.intercept_[0], abs=0.003)
    assert found.slope == pytest.approx(other.coef_[0, 0], abs=0.003)
    assert found.intercept == pytest.approx(math.log(2), abs=0.05)


def test_the_fit_is_the_minimum_of_the_shrunk_sum():
    expected, dice = too_low(12)
    found = fit_dice_scale(expected, dice, COUNTS)

    def cost(intercept, slope):
        total = (intercept**2 + (slope - 1) ** 2) / 2
        for value, reached in zip(expected, dice, strict=True):
            said = 1 / (1 + math.exp(-intercept - slope * math.log(value / (1 - value))))
            total -= reached * math.log(said) + (1 - reached) * math.log(1 - said)
        return total

    best = cost(found.intercept, found.slope)
    for step in (1e-3, -1e-3):
        assert cost(found.intercept + step, found.slope) > best
        assert cost(found.intercept, found.slope + step) > best


def test_errors_are_those_of_the_images_with_both_values():
    expected, dice = too_low()
    both = fit_dice_scale(expected, dice, COUNTS)
    more = [math.nan, 0.0, 0.5]
    found = fit_dice_scale(np.append(expected, more), np.append(dice, [0.5, 0.5, math.nan]), COUNTS)
    assert found == both
    assert found.error_before == pytest.approx(np.abs(expected - dice).mean())
    corrected = [found.of(value) for value in expected]
    assert found.error == pytest.approx(np.abs(corrected - dice).mean())
    assert found.error < found.error_before / 2
    assert (found.images, found.groups) == (40, 40)


@pytest.mark.parametrize("count", [0, 9])
def test_few_images_have_no_curve(count):
    assert fit_dice_scale(*too_low(count), COUNTS) is None


def test_a_curve_that_falls_is_none():
    expected, _ = too_low()
    assert fit_dice_scale(expected, 1 - expected, COUNTS) is None


def test_images_that_are_all_perfect_have_a_finite_curve():
    expected, _ = too_low()
    found = fit_dice_scale(expected, np.ones(40), COUNTS)
    assert 0.9 < found.of(0.5) < 1
