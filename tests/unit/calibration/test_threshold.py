"""The risk threshold by hand, and its intervals where resampling can be worked out."""

import numpy as np
import pytest
import torch

from segconf.calibration.threshold import fit_threshold
from segconf.metrics.streaming import ConfidenceMetrics


def fitted(images, max_risk, groups=None):
    """Threshold of images, each a foreground probability and a mask of the same shape."""
    pooled, summaries = ConfidenceMetrics(num_classes=2), []
    for probability, mask in images:
        p = torch.as_tensor(probability, dtype=torch.float64)
        metrics = ConfidenceMetrics(num_classes=2)
        logits = torch.stack([torch.log1p(-p), torch.log(p)])
        metrics.update(logits[None], torch.as_tensor(np.asarray(mask, np.uint8))[None])
        pooled.merge(metrics)
        summaries.append(metrics.summary())
    groups = groups or [str(number) for number in range(len(images))]
    return fit_threshold(pooled, summaries, max_risk, groups=groups)


def test_threshold_by_hand():
    # Confidence 0.95: ten right. 0.85: four right, one wrong. 0.75: three right, two wrong.
    probability = np.array([[0.95] * 10 + [0.85] * 5 + [0.75] * 5])
    mask = np.array([[1] * 10 + [1] * 4 + [0] + [1] * 3 + [0] * 2], np.uint8)
    found = fitted([(probability, mask)], 0.1)
    # 1 / 15 = 0.067 wrong at 0.85; 3 / 20 = 0.15 with the rest.
    assert found.threshold == pytest.approx(0.85, abs=1e-6)
    assert found.coverage == pytest.approx(15 / 20)
    assert found.risk == pytest.approx(1 / 15)
    assert found.coverage_interval == pytest.approx((0.75, 0.75))  # one image: nothing to vary
    assert found.risk_interval == pytest.approx((1 / 15, 1 / 15))
    assert found.max_risk == 0.1


def test_threshold_that_nothing_reaches():
    found = fitted([(np.full((2, 2), 0.9), np.zeros((2, 2)))], 0.1)
    assert (found.threshold, found.coverage) == (1.0, 0.0)
    assert np.isnan(found.risk)
    assert np.isnan(found.risk_interval).all()
    assert found.coverage_interval == (0.0, 0.0)


def test_coverage_interval_varies_with_the_images():
    images = [
        (np.full((4, 4), 0.99 if number % 2 else 0.6), np.full((4, 4), number % 2))
        for number in range(20)
    ]
    found = fitted(images, 0.01)
    low, high = found.coverage_interval
    assert found.coverage == pytest.approx(0.5)
    # Fraction of sure images among 20 draws: standard deviation sqrt(0.25 / 20) = 0.11.
    assert low == pytest.approx(0.5 - 1.96 * 0.112, abs=0.06)
    assert high == pytest.approx(0.5 + 1.96 * 0.112, abs=0.06)


def test_intervals_of_two_images_are_those_of_either_alone():
    # At 0.9 the first image has 1 of 5 pixels wrong, the second 1 of 20.
    first = ([[0.9] * 5 + [0.6] * 5], [[1] * 4 + [0] + [0] * 5])
    second = ([[0.9] * 20], [[1] * 19 + [0]])
    found = fitted([first, second], 0.08)
    assert found.threshold == pytest.approx(0.9, abs=1e-6)
    assert found.risk == pytest.approx(2 / 25)
    assert found.coverage == pytest.approx(25 / 30)
    # Two draws are the same image twice in a quarter of the cases each: far more than 2.5%.
    assert found.risk_interval == pytest.approx((1 / 20, 1 / 5))
    assert found.coverage_interval == pytest.approx((5 / 10, 20 / 20))


def test_a_group_counts_as_one_image():
    first = ([[0.9] * 5 + [0.6] * 5], [[1] * 4 + [0] + [0] * 5])
    second = ([[0.9] * 20], [[1] * 19 + [0]])
    whole = fitted([first, second], 0.08)
    cut = [
        ([[0.9] * 5], [[1] * 4 + [0]]),
        ([[0.9] * 20], [[1] * 19 + [0]]),
        ([[0.6] * 5], [[0] * 5]),
    ]
    assert fitted(cut, 0.08, groups=["p", "q", "p"]) == whole
    assert fitted(cut, 0.08).risk_interval == whole.risk_interval
    assert fitted(cut, 0.08).coverage_interval != whole.coverage_interval


def test_risk_interval_is_that_of_a_slow_bootstrap():
    generator = np.random.default_rng(4)
    images, counts = [], []
    for _ in range(40):
        sure = generator.integers(10, 60)
        wrong = generator.binomial(sure, generator.uniform(0, 0.08))
        images.append(
            ([[0.9] * sure + [0.55] * 10], [[0] * wrong + [1] * (sure - wrong) + [1, 0] * 5])
        )
        counts.append((wrong, sure))
    found = fitted(images, 0.06)
    total_wrong, total = (sum(column) for column in zip(*counts, strict=True))
    assert found.risk == pytest.approx(total_wrong / total)
    risks = []
    for _ in range(4000):
        picks = generator.integers(40, size=40)
        risks.append(sum(counts[i][0] for i in picks) / sum(counts[i][1] for i in picks))
    assert found.risk_interval[0] == pytest.approx(np.quantile(risks, 0.025), rel=0.06)
    assert found.risk_interval[1] == pytest.approx(np.quantile(risks, 0.975), rel=0.06)
