"""Referral with a guarantee: p-values by slow sums, and promises that simulations keep."""

import math

import numpy as np
import pytest

from segconf.calibration.referral_guarantee import (
    DELTA,
    FRACTIONS,
    UNDEFINED,
    certify_referral,
    hoeffding_bentkus,
)
from tests.references import conformal as reference


def draws(generator, count):
    """Scores and Dice of images that are right or wrong: 85% are right, more at high scores."""
    score = generator.random(count)
    return score, (generator.random(count) < 0.7 + 0.3 * score).astype(np.float64)


def names(count):
    return [str(number) for number in range(count)]


def test_p_values_equal_a_slow_sum():
    generator = np.random.default_rng(0)
    for count in (1, 5, 40):
        for limit in (0.05, 0.15, 0.5):
            losses = generator.beta(1, 12, count).tolist()
            expected = reference.hoeffding_bentkus(losses, limit)
            found = hoeffding_bentkus(sum(losses) / count, count, limit)
            assert found == pytest.approx(expected), (count, limit)
    assert hoeffding_bentkus(0.0, 20, 0.2) == pytest.approx(0.8**20)
    assert hoeffding_bentkus(0.2, 20, 0.2) == hoeffding_bentkus(0.0, 0, 0.2) == 1.0


def test_perfect_images_need_no_referral_and_few_prove_nothing():
    # 0.85^n <= 0.1 / 6 from n = 26 on.
    for count, possible in ((25, False), (26, True)):
        score, dice = np.linspace(0.5, 1, count), np.ones(count)
        rule = certify_referral(score, dice, names(count), target_dice=0.85)
        assert (rule.threshold is not None) == possible
        assert rule.p_value == pytest.approx(0.85**count)
        assert rule.groups == count
        if possible:
            assert (rule.threshold, rule.fraction, rule.kept_dice) == (UNDEFINED, 0, 1)


def test_images_without_a_score_are_referred():
    score, dice = (
        np.append(np.full(10, UNDEFINED), np.ones(40)),
        np.append(np.zeros(10), np.ones(40)),
    )
    rule = certify_referral(score, dice, names(50), target_dice=0.85)
    assert rule.threshold == UNDEFINED
    assert rule.fraction == pytest.approx(0.2)


def test_the_least_that_is_certified_is_referred():
    """100 images: the lower 30 are bad, so that only referring them leaves a provable Dice."""
    score = np.arange(100) / 100
    dice = np.where(score < 0.295, 0.3, 0.99)
    rule = certify_referral(score, dice, names(100), target_dice=0.85)
    certified = []
    for fraction in FRACTIONS:
        kept = [d for s, d in zip(score, dice, strict=True) if s >= round(fraction, 2)]
        p_value = reference.hoeffding_bentkus([1 - d for d in kept], 0.15)
        certified += [fraction] if p_value <= DELTA / len(FRACTIONS) else []
    assert rule.fraction == pytest.approx(certified[0])
    assert rule.threshold == pytest.approx(certified[0] - 0.01)


def test_a_group_counts_once():
    score, dice = np.full(60, 0.9), np.ones(60)
    alone = certify_referral(score, dice, names(60), target_dice=0.85)
    together = certify_referral(score, dice, [str(n // 6) for n in range(60)], target_dice=0.85)
    assert alone.threshold is not None
    assert together.threshold is None
    assert (together.groups, together.images) == (10, 60)
    # Of the two images of a group, only the one above the threshold counts.
    mixed = certify_referral(
        np.tile([UNDEFINED, 0.9], 40), np.tile([0.0, 1.0], 40), [str(n // 2) for n in range(80)],
        target_dice=0.85,
    )  # fmt: skip
    assert (mixed.threshold, mixed.kept_dice, mixed.fraction) == (UNDEFINED, 1, 0.5)


def test_the_promise_is_broken_no_more_often_than_it_says():
    """1000 repetitions: the true mean Dice of what is kept, from a million images."""
    generator = np.random.default_rng(1)
    truth_score, truth_dice = draws(generator, 1_000_000)
    order = np.argsort(truth_score)
    truth_score = truth_score[order]
    above = np.cumsum(truth_dice[order][::-1])[::-1] / np.arange(len(order), 0, -1)
    target, broken, certified = 0.855, 0, 0  # just missed without any referral
    for _ in range(1000):
        score, dice = draws(generator, 400)
        rule = certify_referral(score, dice, names(400), target_dice=target)
        if rule.threshold is not None:
            certified += 1
            place = min(np.searchsorted(truth_score, rule.threshold, side="right"), len(above) - 1)
            broken += above[place] < target
    assert certified > 500  # an empty promise would be kept as well
    assert broken / 1000 <= DELTA + 1.96 * math.sqrt(DELTA * (1 - DELTA) / 1000)
