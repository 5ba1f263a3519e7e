"""Scores of images against plain arithmetic, whatever the size of the image."""

import math

import numpy as np
import pytest

from segconf.active.strategies import image_score, random_scores

LOGITS = {"confidence", "entropy", "expected-dice", "boundary-confidence"}


def two_class_logits(foreground):
    """Logits (2, h, w) whose softmax gives the foreground these probabilities."""
    foreground = np.asarray(foreground, np.float64)
    return np.stack([np.log(1 - foreground), np.log(foreground)]).astype(np.float32)


def test_four_pixels_worked_by_hand():
    logits = two_class_logits([[0.9, 0.6], [0.2, 0.1]])
    # Confidence 0.9, 0.6, 0.8, 0.9.
    assert image_score("confidence", logits) == pytest.approx(3.2 / 4, abs=1e-5)
    # Foreground 0.9 + 0.6 of 1.8 in all; two pixels are predicted.
    assert image_score("expected-dice", logits) == pytest.approx(2 * 1.5 / (1.8 + 2), abs=1e-5)
    entropies = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) for p in (0.9, 0.6, 0.2, 0.1)]
    assert image_score("entropy", logits) == pytest.approx(sum(entropies) / 4, abs=1e-6)


def test_three_classes():
    probabilities = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]).T[:, None]  # (3, 1, 2)
    logits = np.log(probabilities).astype(np.float32)
    assert image_score("confidence", logits) == pytest.approx((0.5 + 0.7) / 2, abs=1e-5)
    entropy = -(probabilities * np.log(probabilities)).sum() / 2
    assert image_score("entropy", logits) == pytest.approx(entropy, abs=1e-6)
    # Not background: 0.5 and 0.9; the second pixel is predicted as foreground.
    assert image_score("expected-dice", logits) == pytest.approx(2 * 0.9 / (1.4 + 1), abs=1e-5)


@pytest.mark.parametrize("strategy", sorted(LOGITS - {"boundary-confidence"}))
def test_four_copies_of_an_image_side_by_side_have_its_score(strategy):
    foreground = np.random.default_rng(1).uniform(0.02, 0.98, (8, 12))
    one = image_score(strategy, two_class_logits(foreground))
    four = image_score(strategy, two_class_logits(np.tile(foreground, (2, 2))))
    assert four == pytest.approx(one, abs=1e-6)


def test_the_border_counts_and_nothing_else():
    rows = np.arange(40)[:, None]
    found = np.where(rows < 20, 0.99, 0.01) * np.ones((1, 40))
    # 2% of the diagonal of 56.6 pixels: the band is the one row on each side that a pixel reaches.
    found[18:20], found[20:22] = 0.7, 0.3
    at_border = image_score("boundary-confidence", two_class_logits(found))
    assert at_border == pytest.approx(0.7, abs=1e-4)
    assert image_score("confidence", two_class_logits(found)) > 0.95


def test_an_image_without_a_border_is_judged_by_all_its_pixels():
    logits = two_class_logits([[0.1, 0.2], [0.3, 0.4]])
    whole = image_score("confidence", logits)
    assert image_score("boundary-confidence", logits) == whole == pytest.approx(0.75, abs=1e-5)
    assert image_score("expected-dice", logits) == whole  # nothing was found: no Dice to expect


def test_a_certain_image_has_no_entropy():
    logits = np.array([[[8e3, -8e3]], [[-8e3, 8e3]]], np.float32)
    assert str(image_score("entropy", logits)) == "0.0"


def test_the_prediction_says_nothing_to_other_strategies():
    with pytest.raises(ValueError, match="coreset does not look at the prediction"):
        image_score("coreset", two_class_logits([[0.5]]))


def test_random_numbers_belong_to_seed_and_id():
    ids = [f"case_{number}" for number in range(400)]
    scores = random_scores(ids, seed=0)
    assert random_scores(ids[::-1], seed=0) == scores[::-1]
    assert random_scores(ids, seed=1) != scores
    # 400 uniform numbers: mean 0.5 with a standard error of 0.0144.
    assert abs(sum(scores) / 400 - 0.5) < 4 * 0.0144
    assert 0 <= min(scores) < max(scores) < 1


def test_an_image_that_is_surely_empty_has_the_score_of_its_confidence():
    logits = np.stack([np.full((4, 4), 300.0), np.zeros((4, 4))]).astype(np.float32)
    assert image_score("expected-dice", logits) == 1.0
