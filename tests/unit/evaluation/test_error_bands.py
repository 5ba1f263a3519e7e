"""Error rates of bands by hand, and the agreement of expected Dice with scipy."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from segconf.evaluation.error_bands import dice_agreement, error_bands, page_rates, spearman
from segconf.evaluation.evaluator import Evaluator, Tolerances
from segconf.overlays.layers import Scale, Step

SCALE = Scale((Step(2, 0.5), Step(4, 0.6), Step(10, 0.8), Step(20, 0.9), Step(100, 0.99)), 4, 10)


def evaluated():
    """One image of 1 x 12 pixels; the lesion is the last four, the band two pixels either way."""
    #               away from the outline           near it         lesion
    foreground = [0.005, 0.30, 0.30, 0.45, 0.15, 0.05, 0.45, 0.55, 0.95, 0.45, 0.995, 0.85]
    mask = np.array([[0] * 8 + [1] * 4], np.uint8)
    evaluator = Evaluator(2, Tolerances(boundary=2.0))
    p = torch.tensor([foreground], dtype=torch.float64)
    evaluator.add("a", torch.stack([1 - p, p]), mask)
    return evaluator


def test_bands_worked_by_hand():
    bands = error_bands(evaluated().pooled, SCALE)
    assert [(one.above, one.at_most) for one in bands] == [
        (4, None), (10, 4), (20, 10), (100, 20), (None, 100)
    ]  # fmt: skip
    assert [one.shaded for one in bands] == [True, True, False, False, False]
    # Confidence 0.55: pixels 3, 6, 7, 9, of which 7 and 9 are wrong. 0.7: pixels 1 and 2.
    # 0.85: 4 and 11. 0.95: 5 and 8. 0.995: 0 and 10.
    assert [one.all.fraction for one in bands] == pytest.approx([4 / 12] + [2 / 12] * 4)
    assert [one.all.error_rate for one in bands] == pytest.approx([2 / 4, 0, 0, 0, 0])
    # Within two pixels of the outline: 6, 7, 8, 9.
    assert bands[0].boundary.fraction == pytest.approx(3 / 4)
    assert bands[0].boundary.error_rate == pytest.approx(2 / 3)
    assert bands[0].interior.fraction == pytest.approx(1 / 8)
    assert bands[0].interior.error_rate == 0
    assert math.isnan(bands[1].boundary.error_rate)  # no pixel
    assert bands[3].boundary.fraction == pytest.approx(1 / 4)


def test_what_the_page_shades_and_leaves_clear_by_hand():
    bands = error_bands(evaluated().pooled, SCALE)
    shaded, clear = page_rates(bands, shaded=True), page_rates(bands, shaded=False)
    # Shaded: the first two bands, pixels 1, 2, 3, 6, 7, 9, of which 7 and 9 are wrong. Of the four
    # near the outline these are 6, 7, 9.
    assert (shaded.all.fraction, shaded.all.error_rate) == pytest.approx((6 / 12, 2 / 6))
    assert (shaded.boundary.fraction, shaded.boundary.error_rate) == pytest.approx((3 / 4, 2 / 3))
    assert (shaded.interior.fraction, shaded.interior.error_rate) == pytest.approx((3 / 8, 0))
    assert (clear.all.fraction, clear.all.error_rate) == pytest.approx((6 / 12, 0))
    assert (clear.boundary.fraction, clear.interior.fraction) == pytest.approx((1 / 4, 5 / 8))
    assert math.isnan(page_rates([], shaded=True).all.error_rate)


def test_bands_between_steps_that_the_run_does_not_know_are_one():
    few = Scale((Step(2, 0.5), Step(4, 0.6), Step(10, 0.8)), 4, 10)
    bands = error_bands(evaluated().pooled, few)
    assert [(one.above, one.at_most) for one in bands] == [(4, None), (10, 4), (None, 10)]
    assert sum(one.all.fraction for one in bands) == pytest.approx(1)
    assert bands[-1].confidence == (0.8, 1.0)


def test_the_level_of_the_shading_is_always_between_two_bands():
    unsure = Scale((Step(2, 0.58), Step(4, 0.99), Step(10, 1.0)), 2, 2)
    bands = error_bands(evaluated().pooled, unsure)
    assert [(one.above, one.shaded) for one in bands] == [
        (2, True), (4, False), (10, False), (None, False)
    ]  # fmt: skip
    shaded = page_rates(bands, shaded=True).all
    assert (shaded.fraction, shaded.error_rate) == pytest.approx((4 / 12, 2 / 4))  # 3, 6, 7, 9


@pytest.mark.parametrize("seed", range(3))
def test_rank_correlation_is_that_of_scipy(seed):
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, 8, 40) / 8, generator.random(40)
    second += first
    assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)


def test_agreement_of_expected_and_reached_dice():
    evaluator = evaluated()
    found = dice_agreement(evaluator.rows)
    # Found: pixels 7, 8, 10, 11, of which 7 is none of the four: Dice 2 * 3 / 8.
    assert found.mean_dice == pytest.approx(0.75)
    inside, total = 0.55 + 0.95 + 0.995 + 0.85, 5.5
    assert found.mean_expected == pytest.approx(2 * inside / (total + 4))
    assert found.mean_absolute_error == pytest.approx(abs(found.mean_expected - 0.75))
    assert found.images == 1
    assert math.isnan(found.spearman)  # one image has no order
    assert dice_agreement([]).images == 0
