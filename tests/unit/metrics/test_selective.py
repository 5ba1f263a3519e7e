from fractions import Fraction

import numpy as np
import pytest
import torch

from segconf.metrics.ranking_histogram import Groups
from segconf.metrics.selective import (
    closed_form_optimal_aurc,
    false_positive_rate,
    harmonic_difference,
    optimal_aurc,
    ranking_sums,
    ranking_totals,
)
from segconf.metrics.terms import FixedPointSum


@pytest.mark.parametrize("start", [0, 1, 5, 31, 32, 33, 100, 4000])
@pytest.mark.parametrize("count", [0, 1, 2, 26, 27, 32, 500])
def test_harmonic_difference_equals_the_sum_of_fractions(start, count):
    exact = float(sum(Fraction(1, n) for n in range(start + 1, start + count + 1)))
    result = harmonic_difference(np.array(start), np.array(count))
    assert float(result) == pytest.approx(exact, rel=1e-14, abs=0)


def test_harmonic_difference_of_huge_numbers():
    # H(2n) - H(n) = log 2 - 1/(4 n) + 1/(16 n^2) - ...
    n = 10**10
    expected = np.log(2) - 1 / (4 * n)
    doubled = harmonic_difference(np.array(n), np.array(n))
    assert float(doubled) == pytest.approx(expected, rel=1e-15)
    # One more pixel after many: 1/(n + 1), not the rounding error of a difference of logarithms.
    assert float(harmonic_difference(np.array(n), np.array(1))) == pytest.approx(
        1 / (n + 1), rel=1e-12
    )


def test_risk_of_a_tied_group_equals_the_loop():
    correct, wrong = np.array([3, 0, 40, 1]), np.array([1, 2, 17, 0])
    total, pixels, errors = 0.0, 0, 0.0
    for right, false in zip(correct, wrong, strict=True):
        for _ in range(right + false):
            pixels += 1
            errors += false / (right + false)
            total += errors / pixels
    assert float(ranking_sums(correct, wrong).risk) == pytest.approx(total, rel=1e-14)


def test_empty_groups_change_nothing():
    correct, wrong = np.array([3, 0, 40, 1]), np.array([1, 2, 17, 0])
    gaps = [0, 0, 1, 1, 2, 3, 4]  # positions at which a group without pixels is put
    plain = ranking_sums(correct, wrong)
    sparse = ranking_sums(np.insert(correct, gaps, 0), np.insert(wrong, gaps, 0))
    assert float(sparse.risk) == pytest.approx(float(plain.risk), rel=1e-14)
    assert float(sparse.errors) == float(plain.errors)
    assert float(sparse.precision) == pytest.approx(float(plain.precision), rel=1e-14)


def test_fpr_takes_the_stricter_of_equal_recalls_across_blocks():
    # 95 of 100 right pixels above; then one wrong pixel alone, which adds nothing to the recall.
    first = Groups(np.float32([3.0]), np.array([95]), np.array([1]))
    second = Groups(np.float32([2.0, 1.0]), np.array([0, 5]), np.array([1, 2]))
    assert false_positive_rate(ranking_totals([first, second], 100, 4)) == 1 / 4
    with pytest.raises(ValueError, match="groups hold"):
        ranking_totals([first], 100, 4)


def test_optimum_worked_by_hand_and_its_limit():
    # Two right, then two wrong: 0, 0, 1/3, 2/4.
    assert float(optimal_aurc(np.array(2), np.array(2))) == pytest.approx((1 / 3 + 1 / 2) / 4)
    many = np.array(9 * 10**8), np.array(10**8)
    closed = 0.1 + 0.9 * np.log(0.9)
    assert float(closed_form_optimal_aurc(*many)) == pytest.approx(closed)
    assert float(optimal_aurc(*many)) == pytest.approx(closed, rel=1e-7)
    assert float(closed_form_optimal_aurc(np.array(0), np.array(7))) == 1.0


def test_fixed_point_sum_is_exact_for_any_size():
    values = torch.tensor([0.1, 2.0**-36, 1e9, 3e38, 0.0], dtype=torch.float64)
    units = sum(round(Fraction(float(value)) * 2**36) for value in values)
    total = FixedPointSum.of(values)
    assert total.state() == (units, 0)
    medium = torch.full((1000,), 1000.0)
    assert FixedPointSum.of(medium).state() == (10**6 * 2**36, 0)
    # The small terms are below the resolution of float64 next to the large one.
    mixed = torch.tensor([2.0**18, 2.0**-36, 2.0**-36, 2.0**-36], dtype=torch.float64)
    assert FixedPointSum.of(mixed).state() == (2**54 + 3, 0)
    total.merge(FixedPointSum.of(torch.tensor([float("inf"), 1.0])))
    assert total.state() == (units + 2**36, 1)
    assert total.mean(7) == float("inf")
    assert np.isnan(FixedPointSum().mean(0))
