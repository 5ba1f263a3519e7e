"""Calibrators pixel by pixel, their limits, and calibrators that are refused."""

import numpy as np
import pytest
import torch

from segconf.calibration.calibrators import (
    AS_IT_IS,
    EnsembleScaling,
    TemperatureScaling,
    VectorScaling,
    calibrator_in,
)
from tests.references import calibrators as reference

ETS = EnsembleScaling(temperature=2.5, weights=(0.5, 0.2, 0.3))
VECTOR = VectorScaling(scales=(0.5, 1.5, 1.0), biases=(0.1, -0.2, 0.3))


def logits(classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 4 * torch.randn(2, classes, 3, 4, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize(
    "weights", [(0.5, 0.2, 0.3), (1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0.4, 0.6)]
)
def test_ets_is_the_mixture(classes, weights):
    values = logits(classes)
    found = EnsembleScaling(temperature=2.5, weights=weights).apply(values).softmax(dim=1)
    for image, row, column in np.ndindex(2, 3, 4):
        expected = reference.ensemble(values[image, :, row, column].tolist(), 2.5, weights)
        assert found[image, :, row, column].tolist() == pytest.approx(expected)


def test_vector_scaling_has_numbers_of_every_class():
    values = logits()
    found = VECTOR.apply(values).softmax(dim=1)
    for image, row, column in np.ndindex(2, 3, 4):
        given = values[image, :, row, column].tolist()
        expected = reference.vector(given, VECTOR.scales, VECTOR.biases)
        assert found[image, :, row, column].tolist() == pytest.approx(expected)


def test_a_temperature_of_1_changes_nothing():
    values = logits().float()
    assert torch.equal(AS_IT_IS.apply(values), values)
    assert torch.equal(TemperatureScaling(temperature=2).apply(values), values / 2)


def test_ets_ranks_where_probabilities_saturate():
    """Confidence that is 1 in float32 is still ordered by the log-odds, without infinities."""
    values = torch.tensor([[200.0, 0.0], [300.0, 0.0], [400.0, 0.0]])[:, :, None, None]
    only_scaled = EnsembleScaling(temperature=2.0, weights=(0.6, 0.4, 0.0)).apply(values)
    assert only_scaled.isfinite().all()
    odds = (only_scaled[:, 0] - only_scaled[:, 1]).flatten()
    # The cooler part vanishes beside the warmer one: z / 2, and log 0.6 off the other class.
    assert odds.tolist() == pytest.approx([100.511, 150.511, 200.511], abs=1e-3)


@pytest.mark.parametrize("calibrator", [TemperatureScaling(temperature=1.5), ETS, VECTOR])
def test_calibrators_come_back_from_text(calibrator):
    assert calibrator_in(calibrator.model_dump_json()) == calibrator
    assert 5 < len(calibrator.describe()) < 100


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"kind": "magic"}',
        '{"kind": "temperature", "temperature": 0}',
        '{"kind": "ets", "temperature": 1.0, "weights": [0.5, 0.2, 0.2]}',
        '{"kind": "ets", "temperature": 1.0, "weights": [1.5, -0.5, 0.0]}',
        '{"kind": "ets", "temperature": 1.0, "weights": [1.0]}',
        '{"kind": "vector", "scales": [1.0, 2.0], "biases": [0.0]}',
        '{"kind": "vector", "scales": [1.0], "biases": [0.0]}',
        '{"kind": "vector", "scales": [1.0, NaN], "biases": [0.0, 0.0]}',
    ],
)
def test_what_is_no_calibrator_is_refused(text):
    with pytest.raises(ValueError, match="validation error"):
        calibrator_in(text)
