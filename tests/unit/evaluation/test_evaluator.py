"""Scores of single images, worked by hand or by slow loops."""

import math

import numpy as np
import pytest
import torch

from segconf.calibration.threshold import fit_threshold
from segconf.evaluation.evaluator import Evaluator, Tolerances, boundary_band
from segconf.evaluation.report import build_report
from segconf.metrics.overlap import expected_dice
from tests.references import metrics as reference


def logits_of(probability):
    """Two-class logits (2, H, W) with this foreground probability."""
    p = torch.as_tensor(probability, dtype=torch.float64)
    return torch.stack([torch.log1p(-p), torch.log(p)])


def evaluated(probability, mask, **tolerances):
    evaluator = Evaluator(2, Tolerances(**tolerances))
    evaluator.add_logits("case", logits_of(probability), np.asarray(mask, np.uint8))
    return evaluator


def test_expected_dice_by_hand():
    foreground = np.array([[0.9, 0.6], [0.2, 0.3]])
    found = foreground > 0.5
    # 2 * (0.9 + 0.6) / (0.9 + 0.6 + 0.2 + 0.3 + 2) = 3 / 4
    sums = foreground[found].sum(), foreground.sum(), found.sum()
    assert expected_dice(*sums) == pytest.approx(0.75)
    assert math.isnan(expected_dice(0.0, 0.0, 0))


def test_boundary_band_is_a_distance_to_the_other_side():
    generator = np.random.default_rng(0)
    truth = np.zeros((12, 15), bool)
    truth[3:8, 4:11] = generator.random((5, 7)) < 0.8
    for distance in (1.0, 2.0, 2.5):
        band = boundary_band(truth, distance)
        for row in range(12):
            for column in range(15):
                others = np.argwhere(truth != truth[row, column])
                nearest = min(math.dist((row, column), other) for other in others)
                assert band[row, column] == (nearest <= distance)


@pytest.mark.parametrize("value", [False, True])
def test_without_an_outline_there_is_no_band(value):
    assert not boundary_band(np.full((4, 4), value), 2.0).any()


def test_row_of_a_case_by_hand():
    mask = np.zeros((4, 4), np.uint8)
    mask[1:3, 1:3] = 1
    probability = np.full((4, 4), 0.1)
    probability[1:3, 1:4] = 0.8  # six pixels, four of them right
    row = evaluated(probability, mask).rows[0]
    assert row.dice == pytest.approx(2 * 4 / (6 + 4))
    assert row.iou == pytest.approx(4 / 6)
    assert row.challenge_jaccard == pytest.approx(4 / 6)  # above 0.65
    assert row.mean_confidence == pytest.approx((6 * 0.8 + 10 * 0.9) / 16)
    assert row.expected_dice == pytest.approx(2 * 6 * 0.8 / (6 * 0.8 + 10 * 0.1 + 6))
    # Ten pixels at 0.9, all right, then six tied at 0.8 with two errors: the expected risks are
    # (j / 3) / (10 + j) for j = 1..6.
    assert row.aurc == pytest.approx(sum(j / 3 / (10 + j) for j in range(1, 7)) / 16)
    assert row.ece == pytest.approx((abs(10 * 0.9 - 10) + abs(6 * 0.8 - 4)) / 16)


def test_the_referral_score_is_over_all_pixels_as_predict_computes_it():
    probability = np.array([[0.9, 0.6], [0.2, 0.3]])
    found = evaluated(probability, [[1, 255], [0, 0]])
    assert found.rows[0].expected_dice == pytest.approx(2 * 0.9 / (0.9 + 0.2 + 0.3 + 1))
    assert found.referral_scores == pytest.approx([2 * 1.5 / (0.9 + 0.6 + 0.2 + 0.3 + 2)])


def test_challenge_jaccard_counts_poor_cases_as_failures():
    mask = np.zeros((4, 4), np.uint8)
    mask[0] = 1
    probability = np.full((4, 4), 0.2)
    probability[:2] = 0.9  # IoU 4 / 8
    row = evaluated(probability, mask).rows[0]
    assert row.iou == pytest.approx(0.5)
    assert row.challenge_jaccard == 0.0


def test_outline_scores_of_a_shifted_square():
    mask = np.zeros((40, 40), np.uint8)
    mask[10:30, 10:30] = 1
    probability = np.full((40, 40), 0.1)
    probability[10:30, 13:33] = 0.9
    row = evaluated(probability, mask, surface=3.0).rows[0]
    assert row.hausdorff95 == pytest.approx(3.0)
    assert row.surface_dice == pytest.approx(1.0)
    # With no tolerance only the parts of the upper and lower edge that coincide count.
    exact = evaluated(probability, mask, surface=0.0).rows[0]
    edge = {(r, c) for r in range(10, 30) for c in range(10, 30) if r in (10, 29) or c in (10, 29)}
    moved = {(r, c + 3) for r, c in edge}
    assert exact.surface_dice == pytest.approx(2 * len(edge & moved) / (len(edge) + len(moved)))


def slow_outline(region):
    """Voxels of a region with a neighbour outside of it, across a side."""
    inside = {index for index in np.ndindex(region.shape) if region[index]}
    steps = [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)]
    return [
        (d, h, w)
        for d, h, w in sorted(inside)
        if any((d + i, h + j, w + k) not in inside for i, j, k in steps)
    ]


def slow_distances(one, other, spacing):
    """From every voxel of one outline to the nearest of the other, in millimetres."""
    return [
        min(math.dist(np.multiply(a, spacing), np.multiply(b, spacing)) for b in other) for a in one
    ]


@pytest.mark.parametrize("spacing", [(3.0, 0.5, 1.5), (0.7, 0.7, 0.7)])
def test_distances_of_a_volume_are_in_millimetres(spacing):
    rng = np.random.default_rng(0)
    truth = np.zeros((5, 12, 11), np.uint8)
    truth[1:4, 3:9, 2:8] = 1
    probability = np.where(np.roll(truth, (1, 2, 1), (0, 1, 2)) == 1, 0.9, 0.1)
    probability = np.where(rng.random(truth.shape) < 0.02, 0.8, probability)
    evaluator = Evaluator(2, Tolerances(surface=1.0))
    values = torch.from_numpy(np.stack([1 - probability, probability], axis=1))  # (D, K, H, W)
    evaluator.add("v", values, truth, spacing=spacing)
    (row,) = evaluator.rows

    edges = slow_outline(probability > 0.5), slow_outline(truth == 1)
    there, back = slow_distances(*edges, spacing), slow_distances(*edges[::-1], spacing)
    assert row.unit == "mm"
    assert row.surface_distance == pytest.approx(np.mean(there + back), rel=1e-5)
    expected = max(np.percentile(there, 95), np.percentile(back, 95))
    assert row.hausdorff95 == pytest.approx(expected, rel=1e-5)


def test_pixels_and_millimetres_have_no_common_mean():
    mask = np.zeros((1, 8, 8), np.uint8)
    mask[0, 2:5, 2:5] = 1
    values = torch.from_numpy(np.stack([1.0 - mask, mask], axis=1).astype(np.float32))
    evaluator = Evaluator(2, Tolerances())
    evaluator.add("picture", values, mask)
    evaluator.add("slice", values, mask, spacing=(0.5, 0.5))
    report = build_report(evaluator, {})
    assert report.about["distance_unit"] == "mm and pixels"
    assert math.isnan(report.per_image["hausdorff95"])
    assert report.per_image["dice"] == 1.0


def test_empty_prediction_or_mask_has_no_outline_score():
    row = evaluated(np.full((4, 4), 0.1), np.zeros((4, 4))).rows[0]
    assert math.isnan(row.dice)
    assert math.isnan(row.hausdorff95)
    missed = evaluated(np.full((4, 4), 0.1), np.eye(4)).rows[0]
    assert missed.dice == 0.0
    assert math.isnan(missed.surface_dice)


def test_ignored_pixels_do_not_count():
    mask = np.array([[0, 1, 255], [0, 1, 255]], np.uint8)
    probability = np.array([[0.1, 0.9, 0.9], [0.1, 0.9, 0.2]])
    evaluator = evaluated(probability, mask)
    assert evaluator.pooled["all"].pixels == 4
    assert evaluator.rows[0].dice == 1.0
    assert evaluator.rows[0].mean_confidence == pytest.approx(0.9)


def test_strata_hold_their_pixels_and_no_others():
    generator = np.random.default_rng(1)
    evaluator = Evaluator(2, Tolerances(boundary=2.0))
    collected = {"all": [], "boundary": [], "foreground": []}
    for number in range(3):
        mask = np.zeros((16, 16), np.uint8)
        mask[4:11, 3 + number : 12] = 1
        probability = np.clip(0.2 + 0.6 * mask + generator.normal(0, 0.3, mask.shape), 0.01, 0.99)
        evaluator.add_logits(f"case {number}", logits_of(probability), mask)
        inside = {
            "all": np.ones_like(mask, bool),
            "boundary": boundary_band(mask > 0, 2.0),
            "foreground": mask > 0,
        }
        for name, pixels in inside.items():
            collected[name] += [
                (max(p, 1 - p), (p > 0.5) == t)
                for p, t in zip(probability[pixels], mask[pixels], strict=True)
            ]
    for name, pairs in collected.items():
        confidence, correct = (np.array(column) for column in zip(*pairs, strict=True))
        values = evaluator.pooled[name].compute()
        assert evaluator.pooled[name].pixels == len(pairs)
        assert values["accuracy"] == pytest.approx(correct.mean())
        assert values["aurc"] == pytest.approx(reference.aurc(confidence, correct), abs=1e-6)
        assert values["ece"] == pytest.approx(reference.ece(confidence, correct), abs=1e-6)


def test_a_volume_is_judged_whole_by_hand():
    """Three slices of 2 x 2: the mean of their own Dice would be 0.6, that of the volume is 0.8."""
    masks = np.array([[[1, 1], [1, 1]], [[1, 0], [0, 0]], [[0, 0], [0, 0]]], np.uint8)
    probability = np.full((3, 2, 2), 0.1)
    probability[0] = 0.9  # four of four
    probability[2, 0, 0] = 0.9  # nothing is there: a false one; the one of slice 1 is missed
    evaluator = Evaluator(2, Tolerances())
    logits = torch.stack([logits_of(plane) for plane in probability])  # (D, K, H, W)
    evaluator.add_logits("volume", logits, masks, group="patient")
    (row,) = evaluator.rows
    assert (row.case, row.group, evaluator.groups) == ("volume", "patient", ["patient"])
    assert row.dice == pytest.approx(2 * 4 / (5 + 5))
    assert row.iou == pytest.approx(4 / 6)
    assert row.mean_confidence == pytest.approx(0.9)
    assert row.expected_dice == pytest.approx(2 * 5 * 0.9 / (5 * 0.9 + 7 * 0.1 + 5))
    assert evaluator.pooled["all"].pixels == 12


def test_dice_of_every_class_by_hand():
    mask = np.array([[0, 1, 1, 2, 2, 255]], np.uint8)
    predicted = [0, 1, 2, 2, 1, 1]
    probabilities = torch.full((3, 1, 6), 0.1)
    for column, label in enumerate(predicted):
        probabilities[label, 0, column] = 0.8
    evaluator = Evaluator(3, Tolerances())
    evaluator.add("case", probabilities, mask)
    # Class 1: one of two in both; class 2 likewise. As one foreground all four are right.
    assert evaluator.rows[0].class_dice == pytest.approx((0.5, 0.5))
    assert evaluator.rows[0].dice == 1.0
    evaluator.add("without class 2", probabilities[:, :, :2], mask[:, :2])
    assert evaluator.rows[1].class_dice[0] == 1.0
    assert math.isnan(evaluator.rows[1].class_dice[1])


def test_probabilities_and_logits_are_evaluated_alike():
    generator = np.random.default_rng(2)
    logits = torch.from_numpy(generator.normal(size=(3, 8, 8)))
    mask = generator.integers(0, 3, (8, 8)).astype(np.uint8)
    by_logits, by_probabilities = Evaluator(3, Tolerances()), Evaluator(3, Tolerances())
    by_logits.add_logits("case", logits, mask)
    by_probabilities.add("case", logits.softmax(dim=0), mask)
    first, second = (
        evaluator.pooled["all"].compute() for evaluator in (by_logits, by_probabilities)
    )
    assert first == pytest.approx(second, abs=1e-6)


def test_coverage_interval_is_that_of_the_draws_of_the_bootstrap():
    generator = np.random.default_rng(4)
    evaluator = Evaluator(2, Tolerances())
    inside = []
    for number in range(9):
        probability = generator.choice([0.9, 0.6], size=(3, 4))
        mask = (generator.random((3, 4)) < np.where(probability > 0.8, 1.0, 0.5)).astype(np.uint8)
        evaluator.add_logits(f"case {number}", logits_of(probability), mask)
        inside.append((probability > 0.8).mean())
    found = fit_threshold(
        evaluator.pooled["all"], evaluator.summaries, 0.0, groups=evaluator.groups, seed=6
    )
    assert found.threshold == pytest.approx(0.9, abs=1e-6)
    picks = torch.randint(9, (1000, 9), generator=torch.Generator().manual_seed(6)).numpy()
    slow = sorted(np.array(inside)[picks].mean(axis=1))
    # (1 - 0.95) / 2 is a little more than 0.025 in floating point: the 26th of 1000.
    assert found.coverage_interval == pytest.approx((slow[25], slow[974]))
