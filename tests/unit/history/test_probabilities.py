"""The running mean of probabilities: its formula, its rounding, what survives a restart."""

import numpy as np
import pytest
import torch

from segconf.history.probabilities import ProbabilityHistory, newest_weight

SIZE = (2, 3)
DECAY = 0.8


def weighted_mean(records):
    """``sum_t d^(n-t) p_t / sum_t d^(n-t)`` by a plain loop over the records, oldest first."""
    total, weights = 0.0, 0.0
    for age, record in enumerate(reversed(records)):
        total = total + DECAY**age * record
        weights += DECAY**age
    return total / weights


def empty(classes=3, **options):
    return ProbabilityHistory(2, SIZE, labeled=[], epochs=9, classes=classes, **options)


def random_probabilities(seed, classes=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, classes, *SIZE, generator=generator).mul(2).softmax(dim=1)


def record(history, probabilities, epoch, case=1):
    history.record(
        torch.tensor([case]),
        probabilities.argmax(dim=1),
        epoch=epoch,
        probabilities=probabilities,
    )


def test_weights_of_the_newest_record_by_hand():
    # d = 0.8: 0.2 / 0.2, 0.2 / 0.36, 0.2 / 0.488
    assert [newest_weight(n) for n in (1, 2, 3)] == pytest.approx([1, 1 / 1.8, 1 / 2.44])


def test_the_mean_follows_the_formula_up_to_its_rounding():
    history, said = empty(), []
    for epoch in range(6):
        said.append(random_probabilities(epoch))
        record(history, said[-1], epoch)
        expected = weighted_mean(said)
        # Each record is rounded by at most half a level, and later ones forget it by 0.8.
        found = history.mean(torch.tensor([1]))
        assert (found - expected)[:, 1:].abs().max() <= 0.5 / 255 * sum(DECAY**k for k in range(6))
        torch.testing.assert_close(found.sum(dim=1), torch.ones(1, *SIZE))
    assert history.has_record(torch.tensor([0, 1])).tolist() == [False, True]


def test_one_record_per_epoch_counts():
    history = empty(classes=2)
    first = torch.tensor([0.25, 0.75]).view(1, 2, 1, 1).expand(1, 2, *SIZE)
    record(history, first, 0)
    record(history, 1 - first, 0)
    assert history.mean(torch.tensor([1]))[0, 1].numpy() == pytest.approx(191 / 255)  # 0.75 * 255


def test_probabilities_of_the_right_shape_are_needed():
    history = empty()
    prediction = torch.zeros(1, *SIZE, dtype=torch.uint8)
    for wrong in (None, random_probabilities(0, classes=2)):
        with pytest.raises(ValueError, match="probabilities of the shape"):
            history.record(torch.tensor([0]), prediction, epoch=0, probabilities=wrong)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_restored_history_goes_on_alike(tmp_path, on_disk):
    options = {"scratch": tmp_path} if on_disk else {}
    history, other = empty(**options), empty()
    for epoch in range(3):
        record(history, random_probabilities(epoch), epoch)
        record(other, random_probabilities(epoch), epoch)
    checksum = history.commit(tmp_path / "history", epoch=3)
    again = ProbabilityHistory.restore(tmp_path / "history", epoch=3, checksum=checksum)
    for one in (again, other):
        record(one, random_probabilities(8), 3)
    cases = torch.tensor([0, 1])
    np.testing.assert_array_equal(again.mean(cases), other.mean(cases))
    np.testing.assert_array_equal(again.consistency(cases), other.consistency(cases))
