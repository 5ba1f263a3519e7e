"""k-center on points worked by hand."""

import itertools

import numpy as np
import pytest
import torch

from segconf.active.strategies import k_center


def column(*values):
    return torch.tensor(values, dtype=torch.float32)[:, None]


def test_points_on_a_line():
    # Covered is 0. Distances 1, 5, 6, 10: the 10 is farthest. Then 1, 5, 4, 0: the 5. Then 1, 0, 1,
    # 0: two are equally far, the first of them is taken.
    chosen = k_center(column(1, 5, 6, 10), 3, centers=column(0))
    assert chosen.positions == [3, 1, 0]
    assert chosen.distances == [10, 5, 1]


def test_the_nearest_of_several_centers_counts():
    # From 0 and 10: 4 has 4, 7 has 3, 12 has 2.
    chosen = k_center(column(12, 7, 4), 1, centers=column(0, 10))
    assert (chosen.positions, chosen.distances) == ([2], [4])


def test_without_centers_the_first_point_is_first():
    chosen = k_center(column(4, 1, 9, 6), 3)
    assert chosen.positions == [0, 2, 1]  # 9 is 5 away, then 1 is 3 away and 6 is 2 away
    assert chosen.distances == [float("inf"), 5, 3]


def test_the_plane():
    points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0], [6.0, 0.0]])
    # From (0, 0): 5, 10, 6. Then from (6, 8): 5, 8; (6, 0) keeps its 6 and wins.
    chosen = k_center(points, 3)
    assert chosen.positions == [0, 2, 3]
    assert chosen.distances[1:] == [10, 6]


def test_copies_are_taken_last_and_once():
    chosen = k_center(column(7, 7, 7, 8), 4, centers=column(0))
    assert chosen.positions == [3, 0, 1, 2]
    assert chosen.distances == [8, 1, 0, 0]


def test_it_is_a_two_approximation():
    """Greedy k-center never needs more than twice the smallest possible radius."""
    points = np.random.default_rng(5).normal(size=(9, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    best = min(
        distances[:, list(three)].min(axis=1).max() for three in itertools.combinations(range(9), 3)
    )
    chosen = k_center(torch.from_numpy(points), 3).positions
    assert best <= distances[:, chosen].min(axis=1).max() <= 2 * best


@pytest.mark.parametrize("count", [-1, 3])
def test_more_than_there_are(count):
    with pytest.raises(ValueError, match="of 2 points"):
        k_center(column(1, 2), count)
