"""What is declared about each metric, against the reference of the project."""

import numpy as np
import pytest

from segconf.metrics.definitions import METRICS, heading, scaled
from segconf.metrics.streaming import ConfidenceMetrics

# Scales in tables by the reference; accuracy is never scaled.
EXPONENTS = {
    "miou": 0,
    "accuracy": 0,
    "aurc": 3,
    "eaurc": 3,
    "augrc": 3,
    "fpr95": 2,
    "aupr_error": 2,
    "ece": 2,
    "nll": 1,
    "brier": 2,
}


def test_names_scales_and_directions():
    assert {name: metric.exponent for name, metric in METRICS.items()} == EXPONENTS
    assert [metric.name for metric in METRICS.values()] == list(METRICS)
    higher = {name for name, metric in METRICS.items() if metric.better == "higher"}
    assert higher == {"miou", "accuracy", "aupr_error"}
    assert (heading("miou"), heading("nll"), heading("brier")) == ("mIoU", "NLL x10", "Brier x10^2")
    assert scaled(0.12345, "aurc") == "123.45"
    assert METRICS["aurc"].scale * 0.12345 == pytest.approx(123.45)


def test_values_worked_by_hand():
    # Confidence 0.9, 0.8, 0.7, 0.6; the second is wrong: risks 0, 1/2, 1/3, 1/4.
    probability = np.array([0.9, 0.8, 0.7, 0.6])
    labels = np.array([[1, 0, 1, 1]])
    metrics = ConfidenceMetrics()
    metrics.update_probabilities(np.stack([1 - probability, probability])[None], labels)
    values = metrics.compute()
    assert list(values) == list(METRICS)
    assert values["accuracy"] == 3 / 4
    assert values["miou"] == pytest.approx((0 / 1 + 3 / 4) / 2)
    assert values["aurc"] == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    # The best order has the error last: 0, 0, 0, 1/4.
    assert values["eaurc"] == pytest.approx(values["aurc"] - (1 / 4) / 4)
    # Errors at coverage 0, 1/4, ..., 1 are 0, 0, 1, 1, 1 quarters; trapezoids of width 1/4.
    assert values["augrc"] == pytest.approx((0 + 1 / 2 + 1 + 1) / 4 / 4)
    assert values["fpr95"] == 1.0  # all right pixels are only accepted with the wrong one
    assert values["aupr_error"] == pytest.approx(1 / 3)  # third by low confidence
    gaps = 0.1 - 0.8 + 0.3 + 0.4  # (0.6, 0.667], (0.667, 0.733], (0.733, 0.8], (0.867, 0.933]
    assert gaps == pytest.approx(0)
    assert values["ece"] == pytest.approx((0.1 + 0.8 + 0.3 + 0.4) / 4)
    assert values["nll"] == pytest.approx(-np.log([0.9, 0.2, 0.7, 0.6]).mean())
    assert values["brier"] == pytest.approx(2 * (0.01 + 0.64 + 0.09 + 0.16) / 4)
