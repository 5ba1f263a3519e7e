"""Promised and kept: losses of contours by hand, band fraction, intervals, referral."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from segconf.calibration.conformal import THRESHOLDS, class_counts
from segconf.calibration.stored import StoredContour, StoredContourCurve, StoredReferralGuarantee
from segconf.evaluation.guarantees import kept_curves, kept_guarantees, kept_referral


def counts(log_odds, truth):
    values = np.asarray(log_odds, np.float32)
    return class_counts(np.stack([np.zeros_like(values), values]), np.asarray(truth, np.uint8))


def contour(kind, alpha, log_odds):
    threshold = None if log_odds is None else float(THRESHOLDS[160 + 16 * log_odds])
    return StoredContour(
        kind=kind,
        class_index=1,
        alpha=alpha,
        threshold=threshold,
        risk=None if threshold is None else 0.0,
        groups=9,
        images=9,
    )


POOLED = np.stack(
    [
        counts([4, 4, -1, -3, 0, -5, -5, -5], [1, 1, 1, 1, 0, 0, 0, 0]),
        counts([4, 4, 4, 0, 3, -5, -5, -5], [1, 1, 1, 1, 0, 0, 0, 0]),
        counts([-5, -5, -5, -5, 3, -5, -5, -5], [0] * 8),
    ]
)


def test_losses_and_band_worked_by_hand():
    contours = [contour("outer", 0.1, -2), contour("inner", 0.1, 2), contour("outer", 0.05, None)]
    outer, inner = kept_guarantees(POOLED, contours)
    # Of the lesions 1/4 and 0 are missed; the third group has none.
    assert outer.measured == pytest.approx((1 / 4 + 0) / 2)
    # Inside the inner line 0 of 2, 1 of 4 and 1 of 1 pixels are wrong.
    assert inner.measured == pytest.approx((0 + 1 / 4 + 1) / 3)
    # Outer areas 4 + 5 + 1, inner areas 2 + 4 + 1, lesions 4 + 4.
    assert outer.band_fraction == inner.band_fraction == pytest.approx((10 - 7) / 8)
    assert (outer.low, outer.high) == (0, 0.25)
    assert list(outer.plain()) == [
        "kind", "class", "alpha", "measured", "low", "high", "band_fraction",
    ]  # fmt: skip
    assert (outer.plain()["class"], outer.plain()["alpha"]) == (1, 0.1)


def test_a_group_without_an_annotated_pixel_keeps_no_promise():
    ignored = counts([4, -5], [255, 255])[None]
    contours = [contour("outer", 0.1, -2), contour("inner", 0.1, 2)]
    assert kept_guarantees(np.concatenate([POOLED, ignored]), contours) == kept_guarantees(
        POOLED, contours
    )


def test_a_contour_without_its_partner_has_no_band():
    (found,) = kept_guarantees(POOLED, [contour("outer", 0.1, -2), contour("inner", 0.1, None)])
    assert math.isnan(found.band_fraction)
    (nothing,) = kept_guarantees(POOLED[2:], [contour("outer", 0.1, -2)])
    assert math.isnan(nothing.measured)


def test_the_inner_loss_is_measured_as_it_is_not_as_its_running_maximum():
    # At 2 one pixel of two is wrong, at 1 one of four.
    pooled = counts([3, 3, 1, 1], [1, 0, 1, 1])[None]
    (found,) = kept_guarantees(pooled, [contour("inner", 0.5, 1)])
    assert found.measured == 0.25


def test_a_curve_has_a_point_for_every_promise():
    points = ((0.1, float(THRESHOLDS[160 - 32])), (0.3, float(THRESHOLDS[160])))
    curve = StoredContourCurve(kind="outer", class_index=1, points=points)
    ((name, found),) = kept_curves(POOLED, [curve]).items()
    assert name == "outer contour: lesion outside"
    assert [(one.alpha, one.measured) for one in found] == [(0.1, 0.125), (0.3, 0.25)]


def test_kept_referral_counts_groups():
    rule = StoredReferralGuarantee(
        score="expected_dice",
        target_dice=0.8,
        delta=0.1,
        threshold=0.5,
        fraction=0.1,
        kept_dice=0.9,
        p_value=0.001,
        groups=50,
        images=50,
    )
    score = [0.9, 0.9, 0.5, math.nan, 0.8, 0.0]  # in the last one nothing was found
    dice = [0.6, 1.0, 0.1, 0.0, math.nan, 0.0]
    rows = [
        SimpleNamespace(mean_confidence=0.9, dice=d, group=g)
        for d, g in zip(dice, "aabcde", strict=True)
    ]
    found = kept_referral(rule, rows, score)
    # Group a keeps two images with a mean of 0.8, d one with nothing to miss; the others none.
    assert found.measured == pytest.approx((0.8 + 1) / 2)
    assert found.kept_fraction == pytest.approx(3 / 6)
    assert (found.low, found.high) == (pytest.approx(0.8), 1.0)
    # A rule that refers as little as it can keeps b too, but nothing in which nothing was found.
    least = kept_referral(rule.model_copy(update={"threshold": -1.0}), rows, score)
    assert least.kept_fraction == pytest.approx(4 / 6)
    assert least.measured == pytest.approx((0.8 + 0.1 + 1) / 3)
    assert kept_referral(None, rows, score) is None
    assert kept_referral(rule.model_copy(update={"threshold": None}), rows, score) is None
    # An image without an annotated pixel has reached nothing, however sure the network was.
    ignored = SimpleNamespace(mean_confidence=math.nan, dice=math.nan, group="f")
    assert kept_referral(rule, [ignored, *rows], [0.99, *score]) == found
    assert kept_referral(rule, [ignored], [0.99]) is None
