"""Referral and detection metrics against pencil and paper, slow loops and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from segconf.calibration.referral import (
    SCORES,
    aurc_interval,
    cases_to_refer,
    fit_notes,
    fit_referral,
    image_aurc,
    image_risk_curve,
    limit_within,
)
from segconf.ood.evaluation import detection_metrics
from segconf.results.rows import CaseRow
from tests.references import triage as reference


def random_cases(seed, count=23, levels=9):
    generator = np.random.default_rng(seed)
    return generator.integers(levels, size=count) / 8, generator.random(count)


def alone(values):
    """Every image as a group of its own."""
    return [str(number) for number in range(len(values))]


def test_curve_of_four_images_worked_by_hand():
    score, risk = np.array([0.9, 0.2, 0.6, 0.6]), np.array([0.0, 0.8, 0.1, 0.3])
    # Best first: 0, then the tie of 0.1 and 0.3 as 0.2 each, then 0.8.
    assert image_risk_curve(score, risk) == pytest.approx([0, 0.1, 0.4 / 3, 1.2 / 4])
    assert image_aurc(score, risk) == pytest.approx((0 + 0.1 + 0.4 / 3 + 0.3) / 4)


@pytest.mark.parametrize("seed", range(5))
def test_curve_and_area_agree_with_the_slow_reference(seed):
    score, risk = random_cases(seed)
    expected = reference.risk_curve(score.tolist(), risk.tolist())
    assert image_risk_curve(score, risk) == pytest.approx(expected)
    assert image_aurc(score, risk) == pytest.approx(np.mean(expected))


def test_resampled_areas_are_those_of_the_repeated_images():
    score, risk = random_cases(7)
    picks = np.random.default_rng(1).integers(len(score), size=(4, len(score)))
    weights = np.array([np.bincount(pick, minlength=len(score)) for pick in picks])
    expected = [np.mean(reference.risk_curve(score[p].tolist(), risk[p].tolist())) for p in picks]
    assert image_aurc(score, risk, weights) == pytest.approx(expected)


def test_interval_holds_the_middle_of_the_resamples():
    score, risk = random_cases(3)
    low, high = aurc_interval(score, risk, alone(score), resamples=400)
    picks = np.random.default_rng(5).integers(len(score), size=(400, len(score)))
    slow = [np.mean(reference.risk_curve(score[p].tolist(), risk[p].tolist())) for p in picks]
    assert low == pytest.approx(np.quantile(slow, 0.025), rel=0.1)
    assert high == pytest.approx(np.quantile(slow, 0.975), rel=0.1)
    assert aurc_interval(score, np.full(len(score), 0.25), alone(score)) == pytest.approx(
        (0.25, 0.25)
    )


def test_fraction_to_refer_worked_by_hand():
    score = np.array([0.9, 0.5, 0.7, 0.3, 0.5])
    quality = np.array([0.9, 0.7, 0.9, 0.2, 0.9])
    # All: 3.6 / 5 = 0.72. Without 0.3: 3.4 / 4 = 0.85. Without both 0.5 as well: 0.9.
    assert cases_to_refer(score, quality, 0.72).referred == 0
    found = cases_to_refer(score, quality, 0.85)
    assert (found.referred, found.fraction, found.threshold) == (1, 0.2, 0.5)
    assert found.kept_quality == pytest.approx(0.85)
    assert cases_to_refer(score, quality, 0.86).referred == 3
    nothing = cases_to_refer(score, quality, 0.91)
    assert (nothing.referred, nothing.fraction, nothing.threshold) == (5, 1.0, np.inf)
    assert np.isnan(nothing.kept_quality)


@pytest.mark.parametrize("seed", range(5))
def test_fraction_to_refer_agrees_with_the_slow_reference(seed):
    score, quality = random_cases(seed)
    for target in (0.3, 0.5, 0.6, 0.75, 0.95):
        expected = reference.cases_to_refer(score.tolist(), quality.tolist(), target)
        assert cases_to_refer(score, quality, target).referred == expected


@pytest.mark.parametrize("seed", range(5))
def test_detection_agrees_with_scikit_learn_and_slow_loops(seed):
    generator = np.random.default_rng(seed)
    own = generator.integers(0, 12, 37) / 4
    others = generator.integers(3, 16, 21) / 4
    found = detection_metrics(own, others)
    truth = [0] * len(own) + [1] * len(others)
    assert found["auroc"] == pytest.approx(roc_auc_score(truth, np.append(own, others)))
    expected = reference.detection_error(own.tolist(), others.tolist())
    assert found["detection_error"] == pytest.approx(expected)
    assert found["fpr95"] == pytest.approx(reference.nearest_fpr(own.tolist(), others.tolist()))


def test_detection_of_the_obvious_and_of_the_reverse():
    apart = detection_metrics(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    assert apart == {"auroc": 1.0, "detection_error": 0.0, "fpr95": 0.0}
    reverse = detection_metrics(np.array([3.0, 4.0]), np.array([1.0, 2.0]))
    assert reverse == {"auroc": 0.0, "detection_error": 0.5, "fpr95": 1.0}
    with pytest.raises(ValueError, match="0 others"):
        detection_metrics(np.ones(3), np.ones(0))


def test_interval_is_that_of_the_draws_of_the_bootstrap():
    score, risk = random_cases(11)
    generator = torch.Generator().manual_seed(2)
    picks = torch.randint(len(score), (50, len(score)), generator=generator).numpy()
    slow = sorted(np.mean(reference.risk_curve(score[p].tolist(), risk[p].tolist())) for p in picks)
    # 2.5% of 50 are reached with the second value, 97.5% with the 49th.
    expected = slow[1], slow[48]
    found = aurc_interval(score, risk, alone(score), resamples=50, seed=2)
    assert found == pytest.approx(expected)


def test_many_images_need_no_square_matrix():
    generator = np.random.default_rng(0)
    score, risk = generator.random(60_000), generator.random(60_000)
    ordered = risk[np.argsort(-score)]
    expected = (np.cumsum(ordered) / np.arange(1, 60_001)).mean()
    assert image_aurc(score, risk) == pytest.approx(expected)


def rows_with(**columns):
    """Cases whose scores are 0.5 but for the given columns."""
    count = len(next(iter(columns.values())))
    rows = []
    for number in range(count):
        values = dict.fromkeys(SCORES, 0.5) | {name: v[number] for name, v in columns.items()}
        rows.append(CaseRow(f"case {number}", f"{number}.png", **values))
    return rows


def test_the_score_with_the_smallest_area_becomes_the_rule():
    dice = np.array([0.9, 0.8, 0.3, 0.7])
    rows = rows_with(
        border_confidence=[0.9, 0.8, 0.2, 0.6],  # the order of the Dice
        mean_confidence=[0.6, 0.7, 0.8, 0.9],
        foreground_confidence=[0.9, np.nan, 0.8, 0.7],  # undefined: referred first
    )
    found = fit_referral(rows, dice, 0.8, budget=0.3, groups=alone(dice))
    # 0.3 of four cases is one. Without the worst the mean is 2.4 / 3 = 0.8.
    assert (found.score, found.threshold, found.fraction) == ("border_confidence", 0.6, 0.25)
    assert found.kept_dice == pytest.approx(0.8)
    assert found.target_fraction == 0.25


def test_the_budget_decides_and_the_target_only_says_whether_it_is_enough():
    dice = np.linspace(0.05, 1, 20)
    rows = rows_with(expected_dice=dice)
    for budget, referred in ((0.0, 0), (0.15, 3), (0.149, 2), (0.5, 10), (0.999, 19)):
        found = fit_referral(rows, dice, 0.6, budget=budget, groups=alone(dice))
        assert found.fraction == pytest.approx(referred / 20)
        assert found.kept_dice == pytest.approx(dice[referred:].mean())
        # The mean of 0.2 .. 1 is 0.6: three cases have to go.
        assert found.target_fraction == pytest.approx(3 / 20)
    assert fit_referral(
        rows, dice, 0.999, budget=0.2, groups=alone(dice)
    ).target_fraction == pytest.approx(0.95)


def test_equal_scores_are_never_referred_beyond_the_budget():
    score = np.array([0.2, 0.2, 0.2, 0.7, 0.9])
    assert limit_within(score, 0.2) == 0.2  # one of five may be: three have the same score
    assert limit_within(score, 0.6) == 0.7
    empty = rows_with(expected_dice=[0.9, 0.8, 0.7], foreground_fraction=[0.0, 0.3, 0.3])
    for budget, threshold in ((0.4, 0.7), (0.1, -1)):  # nothing found comes first
        dice = np.array([0.0, 0.9, 0.8])
        found = fit_referral(empty, dice, 0.5, budget=budget, groups="abc")
        assert found.threshold == threshold


def test_notes_begin_where_one_in_twenty_validation_cases_was():
    values = np.arange(40) / 100
    rows = rows_with(border_confidence=values, shaded_fraction=values, expected_dice=[0.5] * 40)
    found = {note.column: note for note in fit_notes(rows)}
    # Two of forty: 0 and 0.01 are low, 0.38 and 0.39 are high; equal values are never noted.
    assert (found["border_confidence"].limit, found["border_confidence"].high) == (0.02, False)
    assert (found["shaded_fraction"].limit, found["shaded_fraction"].high) == (0.37, True)
    assert found["expected_dice"].fraction == 0
    assert {found[name].fraction for name in ("border_confidence", "shaded_fraction")} == {0.05}


def test_interval_of_two_kept_cases_is_that_of_either_alone():
    dice = np.array([0.9, 0.8, 0.1])
    rows = rows_with(patch_confidence=[0.9, 0.8, 0.2])
    found = fit_referral(rows, dice, 0.85, budget=0.4, groups=alone(dice))
    assert (found.score, found.threshold) == ("patch_confidence", 0.8)
    assert found.kept_dice == pytest.approx(0.85)
    # Three draws hold one of the two and not the other in 7 of 27 cases each: far more than 2.5%.
    assert found.interval == pytest.approx((0.8, 0.9))


def test_cases_of_a_group_are_kept_or_drawn_together():
    dice = np.array([0.9, 0.9, 0.8, 0.8, 0.1])
    rows = rows_with(patch_confidence=[0.9, 0.9, 0.8, 0.8, 0.2])
    found = fit_referral(rows, dice, 0.85, budget=0.2, groups=["a", "a", "b", "b", "c"])
    # Three draws of groups hold one of the two kept ones and not the other in 7 of 27 cases each.
    assert found.interval == pytest.approx((0.8, 0.9))
    copies = [np.tile(values, 8) for values in (dice, [0.9, 0.8, 0.7, 0.6, 0.2])]
    own = aurc_interval(copies[1], 1 - copies[0], list("abcde") * 8)
    once = aurc_interval(copies[1][:5], 1 - dice, list("abcde"))
    apart = aurc_interval(copies[1], 1 - copies[0], alone(copies[0]))
    assert np.ptp(own) > 0.7 * np.ptp(once)
    assert np.ptp(apart) < 0.5 * np.ptp(once)


def test_interval_of_the_kept_cases_is_that_of_a_slow_bootstrap():
    generator = np.random.default_rng(2)
    dice = generator.uniform(0.3, 1, 60)
    score = dice + generator.normal(0, 0.1, 60)
    rows = rows_with(expected_dice=score)
    found = fit_referral(rows, dice, 0.75, budget=0.3, groups=alone(dice))
    assert found.score == "expected_dice"
    kept = [(s >= found.threshold, d) for s, d in zip(score, dice, strict=True)]
    assert found.kept_dice == pytest.approx(np.mean([d for keep, d in kept if keep]))
    means = []
    for _ in range(4000):
        drawn = [kept[pick] for pick in generator.integers(60, size=60)]
        means.append(np.mean([d for keep, d in drawn if keep]))
    low, high = np.quantile(means, [0.025, 0.975])
    assert found.interval == pytest.approx((low, high), abs=0.004)
    assert high - low > 0.05


def test_target_that_no_order_reaches_does_not_refer_every_case():
    rows = rows_with(expected_dice=[0.5, 0.6])
    found = fit_referral(rows, np.array([0.4, 0.5]), 0.9, budget=0.5, groups="ab")
    assert (found.threshold, found.fraction, found.target_fraction) == (0.6, 0.5, 1.0)
    assert found.kept_dice == 0.5
