"""Targets of CaPE: counts and frequencies against loops, by hand, and degenerate cases."""

import pytest
import torch

from segconf.losses.empirical_targets import (
    CELLS,
    cell_counts,
    empirical_frequencies,
    frequency_targets,
    no_counts,
)
from tests.references import calibration_losses as reference

BANDWIDTH = 0.05


def random_pixels(classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(2, classes, 5, 6, generator=generator, dtype=torch.float64)
    masks = torch.randint(0, classes, (2, 5, 6), generator=generator)
    masks[1, 0] = 255
    return logits, masks


def samples_of(logits, masks, number):
    """(probability, label) of a class, pixel by pixel."""
    probabilities = logits.softmax(dim=1)[:, number]
    return [
        (p, int(label == number))
        for p, label in zip(probabilities.flatten().tolist(), masks.flatten().tolist(), strict=True)
        if label != 255
    ]


def test_counts_are_those_of_a_loop():
    logits, masks = random_pixels()
    counts = cell_counts(logits, masks)
    assert counts.shape == no_counts(3).shape
    expected = no_counts(3)
    for number in range(3):
        for probability, label in samples_of(logits, masks, number):
            expected[0, number, reference.cell(probability)] += 1
            expected[1, number, reference.cell(probability)] += label
    assert torch.equal(counts, expected)
    assert counts.sum(dim=(1, 2)).tolist() == [3 * 54, 54]


@pytest.mark.parametrize("bins", [None, 1, 5, 7])
def test_frequencies_are_those_of_a_loop(bins):
    logits, masks = random_pixels()
    found = empirical_frequencies(cell_counts(logits, masks), bins=bins, bandwidth=BANDWIDTH)
    assert found.shape == (3, CELLS)
    for number in range(3):
        samples = samples_of(logits, masks, number)
        for probability, _ in samples:
            expected = (
                reference.kernel_frequency(probability, samples, BANDWIDTH)
                if bins is None
                else reference.bin_frequency(probability, samples, bins)
            )
            cell = reference.cell(probability)
            assert found[number, cell].item() == pytest.approx(expected)


def test_two_bins_worked_by_hand():
    # Six pixels: class 1 was given .1 .1 .2 and .6 .9 .9; of the class are the third and the last.
    counts = no_counts(2)
    for cell, label in ((100, 0), (100, 0), (200, 1), (600, 0), (900, 0), (900, 1)):
        counts[0, 1, cell] += 1
        counts[1, 1, cell] += label
    found = empirical_frequencies(counts, bins=2, bandwidth=BANDWIDTH)[1]
    assert found[[100, 200, 600, 900]].tolist() == pytest.approx([1 / 3] * 4)
    found = empirical_frequencies(counts, bins=3, bandwidth=BANDWIDTH)[1]
    # Middle ranks 1, 2.5, 3.5, 5 of 6: bins 0, 1, 1, 2.
    assert found[[100, 200, 600, 900]].tolist() == pytest.approx([0, 0.5, 0.5, 0.5])


@pytest.mark.parametrize("bins", [None, 5])
def test_without_pixels_the_probability_stays(bins):
    found = empirical_frequencies(no_counts(2), bins=bins, bandwidth=BANDWIDTH)
    assert found[0].tolist() == pytest.approx([(n + 0.5) / CELLS for n in range(CELLS)])


def test_targets_are_found_by_the_present_probability_and_sum_to_one():
    frequencies = torch.zeros(3, CELLS, dtype=torch.float64)
    frequencies[0, 500], frequencies[1, 300], frequencies[2, 200] = 0.3, 0.2, 0.1
    logits = torch.tensor([0.5005, 0.3, 0.1995], dtype=torch.float64).log().reshape(1, 3, 1, 1)
    # 0.1995 is in the cell before 200.
    found = frequency_targets(logits, frequencies).flatten()
    assert found.tolist() == pytest.approx([0.6, 0.4, 0])
    nothing = frequency_targets(logits, torch.zeros(3, CELLS, dtype=torch.float64)).flatten()
    assert nothing.tolist() == pytest.approx([0.5005, 0.3, 0.1995])


def test_a_certain_class_is_in_the_last_cell():
    logits = torch.tensor([100.0, 0.0]).reshape(1, 2, 1, 1)
    counts = cell_counts(logits, torch.zeros(1, 1, 1, dtype=torch.uint8))
    assert counts[0, 0, CELLS - 1] == counts[1, 0, CELLS - 1] == counts[0, 1, 0] == 1
    assert counts[1, 1].sum() == 0
