"""Scores of single images, worked by hand or by slow loops."""

import math

import numpy as np
import pytest
import torch

from segconf.evaluation.evaluator import Judge, Tolerances, boundary_band, expected_dice
from tests.references import metrics as reference


def logits_of(probability):
    """Two-class logits (2, H, W) with this foreground probability."""
    p = torch.as_tensor(probability, dtype=torch.float64)
    return torch.stack([torch.log1p(-p), torch.log(p)])


def judged(probability, mask, **tolerances):
    judge = Judge(2, Tolerances(**tolerances))
    judge.add_logits("case", logits_of(probability), np.asarray(mask, np.uint8))
    return judge


def test_expected_dice_by_hand():
    foreground = np.array([[0.9, 0.6], [0.2, 0.3]])
    found = foreground > 0.5
    # 2 * (0.9 + 0.6) / (0.9 + 0.6 + 0.2 + 0.3 + 2) = 3 / 4
    assert expected_dice(foreground, found) == pytest.approx(0.75)
    assert math.isnan(expected_dice(np.zeros((2, 2)), np.zeros((2, 2), bool)))


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
    row = judged(probability, mask).rows[0]
    assert row.dice == pytest.approx(2 * 4 / (6 + 4))
    assert row.iou == pytest.approx(4 / 6)
    assert row.challenge_jaccard == pytest.approx(4 / 6)  # above 0.65
    assert row.mean_confidence == pytest.approx((6 * 0.8 + 10 * 0.9) / 16)
    assert row.expected_dice == pytest.approx(2 * 6 * 0.8 / (6 * 0.8 + 10 * 0.1 + 6))
    # Ten pixels at 0.9, all right, then six tied at 0.8 with two errors: the expected risks are
    # (j / 3) / (10 + j) for j = 1..6.
    assert row.aurc == pytest.approx(sum(j / 3 / (10 + j) for j in range(1, 7)) / 16)
    assert row.ece == pytest.approx((abs(10 * 0.9 - 10) + abs(6 * 0.8 - 4)) / 16)


def test_challenge_jaccard_counts_poor_cases_as_failures():
    mask = np.zeros((4, 4), np.uint8)
    mask[0] = 1
    probability = np.full((4, 4), 0.2)
    probability[:2] = 0.9  # IoU 4 / 8
    row = judged(probability, mask).rows[0]
    assert row.iou == pytest.approx(0.5)
    assert row.challenge_jaccard == 0.0


def test_outline_scores_of_a_shifted_square():
    mask = np.zeros((40, 40), np.uint8)
    mask[10:30, 10:30] = 1
    probability = np.full((40, 40), 0.1)
    probability[10:30, 13:33] = 0.9
    row = judged(probability, mask, surface=3.0).rows[0]
    assert row.hausdorff95 == pytest.approx(3.0)
    assert row.surface_dice == pytest.approx(1.0)
    # With no tolerance only the parts of the upper and lower edge that coincide count.
    exact = judged(probability, mask, surface=0.0).rows[0]
    edge = {(r, c) for r in range(10, 30) for c in range(10, 30) if r in (10, 29) or c in (10, 29)}
    moved = {(r, c + 3) for r, c in edge}
    assert exact.surface_dice == pytest.approx(2 * len(edge & moved) / (len(edge) + len(moved)))


def test_empty_prediction_or_mask_has_no_outline_score():
    row = judged(np.full((4, 4), 0.1), np.zeros((4, 4))).rows[0]
    assert math.isnan(row.dice)
    assert math.isnan(row.hausdorff95)
    missed = judged(np.full((4, 4), 0.1), np.eye(4)).rows[0]
    assert missed.dice == 0.0
    assert math.isnan(missed.surface_dice)


def test_ignored_pixels_do_not_count():
    mask = np.array([[0, 1, 255], [0, 1, 255]], np.uint8)
    probability = np.array([[0.1, 0.9, 0.9], [0.1, 0.9, 0.2]])
    judge = judged(probability, mask)
    assert judge.pooled["all"].pixels == 4
    assert judge.rows[0].dice == 1.0
    assert judge.rows[0].mean_confidence == pytest.approx(0.9)


def test_strata_hold_their_pixels_and_no_others():
    generator = np.random.default_rng(1)
    judge = Judge(2, Tolerances(boundary=2.0))
    collected = {"all": [], "boundary": [], "foreground": []}
    for number in range(3):
        mask = np.zeros((16, 16), np.uint8)
        mask[4:11, 3 + number : 12] = 1
        probability = np.clip(0.2 + 0.6 * mask + generator.normal(0, 0.3, mask.shape), 0.01, 0.99)
        judge.add_logits(f"case {number}", logits_of(probability), mask)
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
        values = judge.pooled[name].compute()
        assert judge.pooled[name].pixels == len(pairs)
        assert values["accuracy"] == pytest.approx(correct.mean())
        assert values["aurc"] == pytest.approx(reference.aurc(confidence, correct), abs=1e-6)
        assert values["ece"] == pytest.approx(reference.ece(confidence, correct), abs=1e-6)


def test_probabilities_and_logits_are_judged_alike():
    generator = np.random.default_rng(2)
    logits = torch.from_numpy(generator.normal(size=(3, 8, 8)))
    mask = generator.integers(0, 3, (8, 8)).astype(np.uint8)
    by_logits, by_probabilities = Judge(3, Tolerances()), Judge(3, Tolerances())
    by_logits.add_logits("case", logits, mask)
    by_probabilities.add("case", logits.softmax(dim=0), mask)
    first, second = (judge.pooled["all"].compute() for judge in (by_logits, by_probabilities))
    assert first == pytest.approx(second, abs=1e-6)
