"""Conformal contours: the formula by hand, slow loops, and promises that simulations keep."""

import math

import numpy as np
import pytest

from segconf.calibration.conformal import (
    LEVELS,
    THRESHOLDS,
    choose_level,
    class_counts,
    class_log_odds,
    conformal_bound,
    fit_contours,
    level_of,
    losses,
    pooled_by_group,
)
from tests.references import conformal as reference


def binary(log_odds, truth):
    """Counts of an image of two classes, given by the log-odds of class 1 of its pixels."""
    values = np.asarray(log_odds, np.float32)
    return class_counts(np.stack([np.zeros_like(values), values]), np.asarray(truth, np.uint8))


def unit(generator, pixels=60):
    """Log-odds and truth of a made-up image; some are harder than others, one in ten is empty."""
    truth = generator.random(pixels) < generator.uniform(0.1, 0.6)
    if generator.random() < 0.1:
        truth[:] = False
    signal = generator.uniform(0.5, 4) * (2 * truth - 1) + generator.normal(0, 0.8)
    return signal + generator.normal(0, 1.5, pixels), truth


def test_four_units_worked_by_hand():
    # The lesion of unit k has 10 pixels, k of which are at -1 and the others at 1.
    images = [binary([-1] * k + [1] * (10 - k) + [-3] * 5, [1] * 10 + [0] * 5) for k in range(4)]
    loss = losses(pooled_by_group(images, list("abcd"))[:, 0], "outer")
    at_zero, at_minus_one = (int(np.searchsorted(LEVELS, value)) for value in (0, -1))
    assert loss[:, at_zero].tolist() == pytest.approx([0, 0.1, 0.2, 0.3])
    assert loss[:, at_minus_one].tolist() == [0, 0, 0, 0]
    # R = 0.15 at 0: 4/5 * 0.15 + 1/5 = 0.32; R = 0 at -1: 1/5.
    bound = conformal_bound(loss)
    assert bound[at_zero] == pytest.approx(0.32)
    assert bound[at_minus_one] == pytest.approx(0.2)
    assert LEVELS[choose_level(loss, 0.33, "outer")] == 1
    assert LEVELS[choose_level(loss, 0.31, "outer")] == -1
    assert choose_level(loss, 0.19, "outer") is None


def test_the_inner_loss_is_the_maximum_over_smaller_sets():
    # Above 2 one of two pixels is wrong; above 1 one of five: the larger set looks better.
    image = binary([3, 3, 1.5, 1.5, 1.5, -4], [1, 0, 1, 1, 1, 0])
    loss = losses(image, "inner")[0]
    assert loss[np.searchsorted(LEVELS, 2)] == 0.5
    assert loss[np.searchsorted(LEVELS, 1)] == 0.5
    assert loss[np.searchsorted(LEVELS, -4)] == 0.5
    assert loss[np.searchsorted(LEVELS, 3.5)] == 0
    assert losses(binary([3, -4], [1, 0]), "inner")[0][np.searchsorted(LEVELS, -4)] == 0.5


def test_levels_equal_a_slow_loop():
    generator = np.random.default_rng(0)
    units = [unit(generator) for _ in range(25)]
    pooled = np.stack([binary(*one) for one in units])[:, 0]
    limits = LEVELS[::40].tolist()
    for kind in ("outer", "inner"):
        loss = losses(pooled, kind)[:, ::40]
        for alpha in (0.03, 0.1, 0.2, 0.4):
            level = choose_level(loss, alpha, kind)
            expected = reference.tightest(units, limits, alpha, kind)
            assert (None if level is None else limits[level]) == expected, (kind, alpha)


def test_losses_are_monotone():
    generator = np.random.default_rng(1)
    pooled = np.stack([binary(*unit(generator)) for _ in range(20)])[:, 0]
    outer, inner = losses(pooled, "outer"), losses(pooled, "inner")
    assert (np.diff(outer[~np.isnan(outer).any(axis=1)], axis=1) >= 0).all()
    assert (np.diff(inner, axis=1) <= 0).all()


def test_a_smaller_promise_is_a_wider_band():
    generator = np.random.default_rng(2)
    pooled = np.stack([binary(*unit(generator)) for _ in range(200)])
    contours, curves = fit_contours(pooled, (0.05, 0.1, 0.2), images=200)
    found = {(one.kind, one.alpha): one.threshold for one in contours}
    assert found["outer", 0.05] < found["outer", 0.1] < found["outer", 0.2] <= 0.5
    assert found["inner", 0.05] > found["inner", 0.1] > found["inner", 0.2] >= 0.5
    outer = dict(next(curve.points for curve in curves if curve.kind == "outer"))
    assert outer[0.1] == found["outer", 0.1]
    assert all(THRESHOLDS[level_of(value)] == value for value in outer.values())


@pytest.mark.parametrize(("count", "possible"), [(18, False), (19, True)])
def test_too_few_units_promise_nothing(count, possible):
    """Even without any loss the bound is 1 / (n + 1): 5% need 19 units."""
    perfect = np.stack([binary([8] * 10 + [-8] * 10, [1] * 10 + [0] * 10)] * count)
    contours, _ = fit_contours(perfect, (0.05,), images=count)
    assert [one.threshold is not None for one in contours] == [possible, possible]
    assert {one.groups for one in contours} == {count}
    if possible:  # The lines never cross the predicted outline.
        assert [one.threshold for one in contours] == [0.5, 0.5]


def test_empty_masks_have_nothing_to_miss_and_everything_to_lose():
    empty, full = binary([2, -8], [0, 0]), binary([2, -8], [1, 0])
    pooled = pooled_by_group([empty, full], ["a", "b"])
    outer = losses(pooled[:, 0], "outer")
    assert np.isnan(outer[0]).all()
    contours, _ = fit_contours(pooled, (0.5,), images=2)
    assert [one.groups for one in contours] == [1, 2]
    at_one = np.searchsorted(LEVELS, 1)
    assert losses(pooled[:, 0], "inner")[:, at_one].tolist() == [1, 0]
    nothing = pooled_by_group([empty], ["a"])
    assert fit_contours(nothing, (0.9,), images=1)[0][0].threshold is None


def test_groups_without_an_annotated_pixel_do_not_count():
    known, ignored = binary([2, -8], [1, 0]), binary([2, -8], [255, 255])
    pooled = pooled_by_group([known, ignored, ignored], ["a", "b", "c"])
    assert np.isnan(losses(pooled[:, 0], "inner")[1:]).all()
    # (0 + 1) / (1 + 1) from the one group, not 1 / 4 from three without a mistake.
    assert conformal_bound(losses(pooled[:, 0], "inner")).min() == 0.5
    assert [one.groups for one in fit_contours(pooled, (0.5,), images=3)[0]] == [1, 1]


def test_slices_of_a_volume_count_together():
    # One slice misses 1 of 1 pixels, the other 0 of 9: the volume misses a tenth, not a half.
    slices = [binary([-2, -5], [1, 0]), binary([3] * 9, [1] * 9)]
    pooled = pooled_by_group(slices, ["volume", "volume"])
    assert len(pooled) == 1
    loss = losses(pooled[:, 0], "outer")
    assert loss[0, np.searchsorted(LEVELS, 0)] == pytest.approx(0.1)


def test_log_odds_of_three_classes():
    generator = np.random.default_rng(3)
    logits = generator.normal(0, 3, (3, 4, 5)).astype(np.float32)
    found = class_log_odds(logits)
    for label in (1, 2):
        for row in range(4):
            for column in range(5):
                pixel = [math.exp(value) for value in logits[:, row, column]]
                odds = pixel[label] / (sum(pixel) - pixel[label])
                assert found[label - 1, row, column] == pytest.approx(math.log(odds), abs=1e-5)
    mask = np.full((4, 5), 2, np.uint8)
    mask[0] = 255
    counts = class_counts(logits, mask)
    assert counts.shape == (2, 2, len(LEVELS) + 1)
    assert counts.sum(axis=(1, 2)).tolist() == [15, 15]
    assert counts[:, 1].sum(axis=1).tolist() == [0, 15]


def test_the_promise_is_kept_over_a_thousand_repetitions():
    """The mean loss of a new unit is at most alpha, within the interval of a binomial.

    A loss in [0, 1] varies no more than a coin with the same mean. The lower limit is that of the
    theorem, alpha - 2 / (n + 1), so that a rule that promises nothing useful fails as well.
    """
    generator = np.random.default_rng(4)
    repetitions, count = 1000, 30
    promised = {"outer": 0.1, "inner": 0.15}
    kept = {kind: [] for kind in promised}
    for _ in range(repetitions):
        counts = np.stack([binary(*unit(generator)) for _ in range(count + 1)])[:, 0]
        for kind, alpha in promised.items():
            loss = losses(counts, kind)
            level = choose_level(loss[:-1], alpha, kind)
            kept[kind].append(0.0 if level is None else loss[-1, level])
    for kind, alpha in promised.items():
        known = [loss for loss in kept[kind] if not math.isnan(loss)]
        slack = 1.96 * math.sqrt(alpha * (1 - alpha) / len(known))
        assert np.mean(known) <= alpha + slack, kind
        assert np.mean(known) >= alpha - 2 / (count + 1) - slack, kind
