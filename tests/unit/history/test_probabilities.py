"""The running mean of log-odds: its formula, its rounding, what survives a restart."""

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
    return torch.randn(1, classes, *SIZE, generator=generator).softmax(dim=1)


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


def log_odds(probabilities):
    """``log(p_k / p_0)`` of the classes after the first."""
    return torch.log(probabilities[:, 1:] / probabilities[:, :1])


def test_the_mean_of_log_odds_follows_the_formula_up_to_its_rounding():
    history, said = empty(), []
    for epoch in range(6):
        said.append(random_probabilities(epoch))
        assert said[-1].min() > 0.001  # none is raised to the least probability, e^-8
        record(history, said[-1], epoch)
        found = history.mean(torch.tensor([1]))
        torch.testing.assert_close(found.sum(dim=1), torch.ones(1, *SIZE))
        # Each record is rounded by half a level of 16 / 255 at most; later ones forget it by 0.8.
        most = 0.5 * 16 / 255 * sum(DECAY**k for k in range(6))
        expected = weighted_mean([log_odds(one) for one in said])
        assert (log_odds(found) - expected).abs().max() <= most + 1e-5
    assert history.has_record(torch.tensor([0, 1])).tolist() == [False, True]


def constant(probability):
    """Both probabilities of two classes, the same for every pixel."""
    said = torch.tensor([1 - probability, probability])
    return said.view(1, 2, 1, 1).expand(1, 2, *SIZE)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # (0.8 * log 9 - log 9) / 1.8 = -0.2441
        (0.9, 0.1, 0.4393),
        # (0.8 * 6.9068 + 1.3863) / 1.8 = 3.8399; the mean of the probabilities is 0.8884
        (0.999, 0.8, 0.9790),
    ],
)
def test_two_records_worked_by_hand(first, second, expected):
    history = empty(classes=2)
    record(history, constant(first), 0)
    record(history, constant(second), 1)
    # Two roundings, the first weighing 0.8 / 1.8: 0.72 levels, 0.046 in log-odds.
    found = history.mean(torch.tensor([1]))[0, 1]
    assert (torch.logit(found) - torch.logit(torch.tensor(expected))).abs().max() <= 0.046


def test_among_many_classes_the_likely_one_stays_likely():
    # Background and third class are both below e^-8; their odds against each other do not count.
    history = empty()
    said = torch.tensor([1e-12, 1 - 1e-5, 1e-5]).view(1, 3, 1, 1).expand(1, 3, *SIZE)
    record(history, said, 0)
    # 1 / (1 + 2 e^-8)
    assert history.mean(torch.tensor([1]))[0, 1].numpy() == pytest.approx(0.99933, abs=2e-5)


def test_one_record_per_epoch_counts():
    history = empty(classes=2)
    record(history, constant(0.75), 0)
    record(history, constant(0.25), 0)
    # log 3 = 1.0986 is level (1.0986 / 8 + 1) / 2 * 255 = 145.01, and 145 is 1.0980.
    assert history.mean(torch.tensor([1]))[0, 1].numpy() == pytest.approx(0.74989, abs=1e-5)


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


def test_a_history_with_other_arrays_is_refused(tmp_path):
    history = empty()
    record(history, random_probabilities(0), 0)
    history._arrays["mean"] = history._arrays.pop("log_odds")  # as an earlier version named it
    history.commit(tmp_path / "history", epoch=1)
    with pytest.raises(ValueError, match=r"another method or version .it holds .*, mean"):
        ProbabilityHistory.restore(tmp_path / "history", epoch=1)
