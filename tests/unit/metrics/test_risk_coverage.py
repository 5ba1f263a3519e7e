import math

import numpy as np
import pytest
import torch

from segconf.metrics import ranking_histogram
from segconf.metrics.overlap import class_iou, dice
from segconf.metrics.streaming import ConfidenceMetrics


def binary(log_odds, correct):
    margin = torch.tensor(log_odds, dtype=torch.float64)
    metrics = ConfidenceMetrics()
    logits = torch.stack([torch.zeros_like(margin), margin])[None]
    metrics.update(logits, torch.tensor(correct).long()[None])
    return metrics


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


def test_risk_coverage_curve_of_five_pixels():
    # Right at 4; one of two wrong at 3; wrong at 2; right at 1.
    metrics = binary([4.0, 3.0, 3.0, 2.0, 1.0], [True, True, False, False, True])
    curve = metrics.risk_coverage()
    assert curve.coverage.tolist() == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert curve.risk.tolist() == pytest.approx([0 / 1, 0.5 / 2, 1 / 3, 2 / 4, 2 / 5])
    assert curve.optimal_risk.tolist() == pytest.approx([0, 0, 0, 1 / 4, 2 / 5])
    assert curve.confidence.tolist() == pytest.approx([sigmoid(v) for v in (4, 3, 3, 2, 1)])
    assert curve.random_risk == pytest.approx(2 / 5)
    assert curve.aurc == pytest.approx(curve.risk.mean())
    assert curve.coverage_at(0.3) == pytest.approx(0.4)
    assert curve.coverage_at(0.0) == pytest.approx(0.2)


def test_fewer_points_are_a_part_of_the_whole_curve():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 3, 200_000, generator=generator)
    labels = torch.randint(3, (1, 200_000), generator=generator)
    metrics = ConfidenceMetrics(3)
    metrics.update(logits, labels)
    full, part = metrics.risk_coverage(200_000), metrics.risk_coverage(100)
    assert len(part.risk) == 100
    np.testing.assert_array_equal(part.risk, full.risk[1999::2000])
    assert full.risk.mean() == pytest.approx(metrics.compute()["aurc"], abs=1e-12)
    order = (-logits[0].double().softmax(0).amax(0)).argsort()
    wrong = (logits[0].argmax(0) != labels[0])[order].double().cumsum(0)
    loop = wrong / torch.arange(1, 200_001)
    # Some log-odds are equal in float32, though not in float64: half an error more or less.
    assert np.abs((full.risk - loop.numpy()) * np.arange(1, 200_001)).max() <= 1
    np.testing.assert_allclose(
        part.confidence, logits[0].double().softmax(0).amax(0)[order][1999::2000], atol=1e-6
    )


def test_curve_without_pixels_is_empty():
    curve = ConfidenceMetrics().risk_coverage()
    assert len(curve.risk) == 0
    assert math.isnan(curve.aurc)
    assert curve.coverage_at(0.5) == 0


def test_threshold_keeps_ties_together():
    metrics = binary([4.0, 3.0, 3.0, 2.0, 1.0], [True, True, False, False, True])
    # Risks at the thresholds: 0/1 at 4, 1/3 at 3, 2/4 at 2, 2/5 at 1.
    none = metrics.threshold_for_risk(0.0)
    assert (none.log_odds, none.coverage, none.risk) == (4.0, 0.2, 0.0)
    some = metrics.threshold_for_risk(0.35)
    assert (some.log_odds, some.coverage) == (3.0, 0.6)
    assert some.confidence == pytest.approx(sigmoid(3))
    # The whole set is allowed again although part of it is not.
    assert metrics.threshold_for_risk(0.4).coverage == 1.0
    refused = binary([4.0, 3.0], [False, True]).threshold_for_risk(0.2)
    assert (refused.confidence, refused.coverage) == (math.inf, 0.0)
    assert math.isnan(refused.risk)
    with pytest.raises(ValueError, match="between 0 and 1"):
        metrics.threshold_for_risk(2)


def test_threshold_of_three_classes_is_a_confidence():
    p = torch.tensor([[0.8, 0.1, 0.1], [0.4, 0.3, 0.3]], dtype=torch.float64)
    metrics = ConfidenceMetrics(3)
    metrics.update_probabilities(p, torch.tensor([0, 1]))
    threshold = metrics.threshold_for_risk(0.1)
    assert threshold.confidence == pytest.approx(0.8, abs=1e-6)
    assert threshold.log_odds == pytest.approx(math.log(4), abs=1e-6)


def test_reliability_of_three_pixels():
    # 0.95 and 0.97 in (14/15, 1], 0.7 in (10/15, 11/15].
    p = torch.tensor([0.95, 0.97, 0.7], dtype=torch.float64)
    metrics = ConfidenceMetrics()
    metrics.update_probabilities(torch.stack([1 - p, p])[None], torch.tensor([[1, 0, 1]]))
    curve = metrics.reliability()
    assert curve.count.tolist() == [0] * 10 + [1, 0, 0, 0, 2]
    assert curve.confidence[[10, 14]].tolist() == pytest.approx([0.7, 0.96])
    assert curve.accuracy[[10, 14]].tolist() == [1.0, 0.5]
    assert np.isnan(curve.accuracy[0])
    assert (curve.lower[10], curve.upper[10]) == (10 / 15, 11 / 15)
    assert curve.ece == pytest.approx((0.3 + 2 * 0.46) / 3)
    assert curve.ece == metrics.compute()["ece"]


def test_overlap_worked_by_hand():
    prediction = np.array([[True, True, False], [False, True, False]])
    mask = np.array([[True, False, False], [False, True, True]])
    assert dice(prediction, mask) == pytest.approx(2 * 2 / (3 + 3))
    nothing = np.zeros((2, 3), bool)
    assert math.isnan(dice(nothing, nothing))
    assert dice(prediction, nothing) == 0
    assert class_iou(np.array([[3, 1], [2, 4]])).tolist() == pytest.approx([3 / 6, 4 / 7])
    with pytest.raises(ValueError, match="mask is"):
        dice(prediction, mask[:1])
    with pytest.raises(ValueError, match="boolean"):
        dice(prediction.astype(float), mask)


def test_selection_at_a_confidence_worked_by_hand():
    # Confidence 0.9, 0.8 (one right, one wrong), 0.6.
    probability = np.array([0.9, 0.8, 0.8, 0.6])
    metrics = ConfidenceMetrics()
    values = np.stack([1 - probability, probability])[None]
    metrics.update_probabilities(values, np.array([[1, 1, 0, 1]]))
    for confidence, coverage, risk in ((0.5, 1, 1 / 4), (0.7, 3 / 4, 1 / 3), (0.85, 1 / 4, 0)):
        found = metrics.selection_at(confidence)
        assert (found.coverage, found.risk) == (coverage, risk)
        assert found.log_odds == pytest.approx(math.log(confidence / (1 - confidence)))
    nothing = metrics.selection_at(0.95)
    assert nothing.coverage == 0
    assert math.isnan(nothing.risk)
    assert metrics.selection_at(1.0).log_odds == math.inf
    assert math.isnan(ConfidenceMetrics().selection_at(0.7).coverage)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kept", [0, 1 << 22])  # in bins, or every value
def test_selection_at_a_fitted_threshold_is_what_was_fitted(classes, kept, monkeypatch):
    monkeypatch.setattr(ranking_histogram, "EXACT_PIXELS", kept)
    generator = torch.Generator().manual_seed(3)
    logits = 2 * torch.randn(1, classes, 5000, generator=generator)
    labels = torch.where(
        torch.rand(1, 5000, generator=generator) < 0.7,
        logits.argmax(1),
        torch.randint(classes, (1, 5000), generator=generator),
    )
    metrics = ConfidenceMetrics(classes)
    metrics.update(logits, labels)
    for max_risk in (0.1, 0.14, 0.2):
        fitted = metrics.threshold_for_risk(max_risk)
        again = metrics.selection_at(fitted.confidence)
        assert (again.coverage, again.risk) == (fitted.coverage, fitted.risk)
    top = logits.double().softmax(1).amax(1)
    chosen = top >= 0.8
    found = metrics.selection_at(0.8)
    assert found.coverage == pytest.approx(float(chosen.double().mean()), abs=1e-3)
    wrong = (logits.argmax(1) != labels)[chosen]
    assert found.risk == pytest.approx(float(wrong.double().mean()), abs=1e-3)
