"""Referral of labels within a budget, by hand."""

import numpy as np
import pytest

from segconf.calibration.calibrate import reserved_budget
from segconf.calibration.label_fit import label_referral
from segconf.errors import ConfigError
from tests.training_runs import settings

CONFIDENCE = np.linspace(0.5, 0.995, 100)
NAMES = [str(number) for number in range(100)]


@pytest.mark.parametrize(
    ("budget", "reserved", "referred"),
    [(0.29, 0, 29), (0.3, 0.05, 25), (0.05, 0.05, 0), (1, 0, 99)],
)
def test_as_many_are_referred_as_the_budget_leaves(budget, reserved, referred):
    correct = CONFIDENCE > 0.6  # the first 21 are wrong
    rule = label_referral(CONFIDENCE, correct, NAMES, refer_fraction=budget, reserved=reserved)
    assert rule.threshold == CONFIDENCE[referred]
    assert rule.fraction == pytest.approx(referred / 100)
    assert rule.kept_accuracy == pytest.approx(correct[referred:].mean())
    assert rule.refer_fraction == budget


def test_a_detector_has_its_part_of_the_budget():
    assert reserved_budget(settings(), 0.1) == 0.05
    with pytest.raises(ConfigError, match=r"at least 0\.05"):
        reserved_budget(settings(), 0.03)
    assert reserved_budget(settings(training__ood_detector=False), 0.03) == 0
