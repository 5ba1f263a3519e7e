"""Run-length code of masks."""

import itertools

import numpy as np
import pytest

from segconf.images.run_length import decode_runs, encode_runs


def test_a_mask_worked_by_hand():
    mask = np.array([[0, 0, 1], [1, 1, 0], [2, 0, 0]], np.uint8)
    runs = [2, 0, 3, 1, 1, 0, 1, 2, 2, 0]
    assert encode_runs(mask) == runs
    np.testing.assert_array_equal(decode_runs(runs, (3, 3)), mask)


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (40, 3)])
def test_random_masks_against_a_loop(shape):
    mask = np.random.default_rng(0).integers(0, 3, shape, dtype=np.uint8)
    groups = [
        (len(list(run)), value) for value, run in itertools.groupby(mask.reshape(-1).tolist())
    ]
    runs = encode_runs(mask)
    assert runs == [number for group in groups for number in group]
    np.testing.assert_array_equal(decode_runs(runs, shape), mask)


def test_parts_of_larger_arrays_and_nothing():
    wide = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert encode_runs(wide[:, ::3]) == [1, 0, 1, 3, 1, 4, 1, 7, 1, 8, 1, 11]
    assert encode_runs(np.zeros((0, 5), np.uint8)) == []


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([4, 0, 1], "in turn"),
        ([3.0, 0, 1, 1], "whole numbers"),
        ([True, 0, 3, 1], "whole numbers"),
        ([3, 0], "add up to 2 x 2"),
        ([5, 0, -1, 1], "add up to 2 x 2"),
        ([0, 1, 4, 0], "add up to 2 x 2"),
        ([4, 256], "not in 0..255"),
        ([4, -1], "not in 0..255"),
        ([10**30, 0], "add up to 2 x 2"),
    ],
)
def test_numbers_that_are_no_code(runs, words):
    with pytest.raises(ValueError, match=words):
        decode_runs(runs, (2, 2))
