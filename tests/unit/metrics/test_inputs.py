"""A batch is counted in pieces: their size, and the number of threads, change nothing."""

import math

import pytest
import torch

from segconf.metrics import inputs
from segconf.metrics.streaming import ConfidenceMetrics
from tests.unit.metrics.test_streaming import counted, random_pixels


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("values", [1, 7, 60, 200])
def test_pieces_do_not_change_the_bits(monkeypatch, classes, values):
    # Pieces of single pixels, of parts of an image, and of several images.
    logits, labels = random_pixels(5, 4 * 33, classes)
    logits = logits.view(classes, 4, 33).movedim(1, 0)  # (4, K, 33)
    labels = labels.view(4, 33).clone()
    labels[1, :9] = 255
    whole = counted(logits, labels)
    monkeypatch.setattr(inputs, "PIECE_VALUES", values)
    parts = counted(logits, labels)
    assert parts.compute() == whole.compute()
    assert parts.confusion.tolist() == whole.confusion.tolist()


def test_a_mistake_in_the_last_piece_counts_nothing(monkeypatch):
    monkeypatch.setattr(inputs, "PIECE_VALUES", 20)
    logits, labels = random_pixels(5, 95)
    metrics = ConfidenceMetrics()
    broken = logits.clone()
    broken[0, 1, -1] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        metrics.update(broken, labels)
    wrong = labels.clone()
    wrong[0, -1] = 2
    with pytest.raises(ValueError, match="label"):
        metrics.update(logits, wrong)
    assert metrics.pixels == 0


def test_threads_do_not_change_the_bits_and_are_given_back():
    logits, labels = random_pixels(8, 1_100_001)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(counted(logits, labels).compute())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1]
