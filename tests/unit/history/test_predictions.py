"""The history of predictions against pencil and paper and a slow replay."""

import os

import numpy as np
import pytest
import torch

from segconf.conventions import IGNORE
from segconf.errors import TrainingError
from segconf.history.predictions import PredictionHistory
from segconf.history.storage import committed_epochs
from tests.references.history import SlowHistory


def image(*labels):
    """A batch of one image of one row."""
    return torch.tensor([[labels]])


def case(number):
    return torch.tensor([number])


@pytest.fixture(params=["memory", "mapped"])
def scratch(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "scratch"


def test_three_epochs_worked_by_hand(scratch):
    history = PredictionHistory(2, (1, 4), labeled=[1], epochs=3, scratch=scratch)
    mask = image(0, 1, 1, IGNORE)
    for epoch, labels in enumerate([(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 1)]):
        history.record(case(1), image(*labels), epoch=epoch, masks=mask)

    # Pixel by pixel: 000, 011, 101, 111 -> agreements 2, 1, 0, 2 of 2 comparisons.
    assert history.consistency(case(1)).tolist() == [[[1.0, 0.5, 0.0, 1.0]]]
    # Masks 0, 1, 1, ignore -> correct 3, 2, 2, 0 of 3 epochs.
    expected = [1.0, 2 / 3, 2 / 3, 0.0]
    assert history.correctness(case(1)).flatten().tolist() == pytest.approx(expected)


def test_answers_are_one_before_there_is_anything_to_compare():
    history = PredictionHistory(1, (1, 2), labeled=[0], epochs=2)
    assert history.consistency(case(0)).tolist() == [[[1, 1]]]
    assert history.correctness(case(0)).tolist() == [[[1, 1]]]
    history.record(case(0), image(0, 1), epoch=0, masks=image(1, 1))
    assert history.consistency(case(0)).tolist() == [[[1, 1]]]
    assert history.correctness(case(0)).tolist() == [[[0, 1]]]


def test_the_first_record_of_an_epoch_counts():
    history = PredictionHistory(2, (1, 2), labeled=[], epochs=2)
    history.record(torch.tensor([1, 1]), torch.tensor([[[0, 0]], [[1, 1]]]), epoch=0)
    history.record(case(1), image(1, 1), epoch=0)
    history.record(case(1), image(0, 1), epoch=1)
    assert history.consistency(case(1)).tolist() == [[[1, 0]]]


def test_an_absent_epoch_is_skipped():
    history = PredictionHistory(1, (1, 2), labeled=[], epochs=9)
    history.record(case(0), image(0, 1), epoch=0)
    history.record(case(0), image(0, 0), epoch=5)
    assert history.consistency(case(0)).tolist() == [[[1, 0]]]


@pytest.mark.parametrize("epochs", [7, 300])
def test_random_replay_equals_the_slow_loop(epochs, scratch):
    rng = np.random.default_rng(3)
    images, size, labeled, classes = 7, (3, 5), [5, 0, 2], 4
    masks = rng.integers(0, classes, (images, *size))
    masks[rng.random(masks.shape) < 0.2] = IGNORE
    history = PredictionHistory(
        images, size, labeled=labeled, epochs=epochs, count_classes=classes, scratch=scratch
    )
    slow = SlowHistory()
    for epoch in range(7):
        for _ in range(3):
            cases = rng.integers(0, images, 4)  # repeats within and between batches
            said = rng.integers(0, classes, (4, *size))
            history.record(
                torch.from_numpy(cases),
                torch.from_numpy(said),
                epoch=epoch,
                masks=torch.from_numpy(masks[cases]),
            )
            slow.record(cases, said.reshape(4, -1), epoch, masks[cases].reshape(4, -1))

    order = torch.tensor([6, 0, 3, 2, 5, 1, 4])
    consistency = history.consistency(order)
    frequencies = history.frequencies(order)
    assert consistency.shape == (7, 3, 5)
    assert consistency.dtype == torch.float32
    for row, number in enumerate(order.tolist()):
        expected = slow.consistency(number)
        assert consistency[row].flatten().tolist() == pytest.approx(expected)
        for label in range(classes):
            expected = slow.frequency(number, label)
            assert frequencies[row, label].flatten().tolist() == pytest.approx(expected)
    for number, answer in zip([2, 5, 0], history.correctness(torch.tensor([2, 5, 0])), strict=True):
        assert answer.flatten().tolist() == pytest.approx(slow.correctness(number))


def test_label_255_is_no_class_but_254_is():
    history = PredictionHistory(1, (1, 2), labeled=[0], epochs=2)
    history.record(case(0), image(254, 0), epoch=0, masks=image(254, IGNORE))
    assert history.correctness(case(0)).tolist() == [[[1, 0]]]
    with pytest.raises(ValueError, match=r"classes in 0\.\.254"):
        history.record(case(0), image(255, 0), epoch=1, masks=image(0, 0))


@pytest.mark.parametrize(
    ("epochs", "agreements", "correct"),
    [(255, "uint8", "uint8"), (256, "uint8", "uint16"), (257, "uint16", "uint16")],
)
def test_counters_are_as_wide_as_the_epochs_need(epochs, agreements, correct, tmp_path):
    history = PredictionHistory(1, (1, 2), labeled=[0], epochs=epochs)
    for epoch in range(epochs):
        history.record(case(0), image(1, epoch % 2), epoch=epoch, masks=image(1, 1))
    # The first pixel always agrees and is always correct, so its counters are full.
    assert history.consistency(case(0)).tolist() == [[[1, 0]]]
    share = (epochs // 2) / epochs
    assert history.correctness(case(0)).flatten().tolist() == pytest.approx([1, share])
    with pytest.raises(ValueError, match=f"planned for {epochs} epochs"):
        history.record(case(0), image(1, 1), epoch=epochs, masks=image(1, 1))

    history.commit(tmp_path, epoch=epochs)
    assert np.load(tmp_path / f"agreements-{epochs:04d}.npy").dtype == agreements
    assert np.load(tmp_path / f"correct-{epochs:04d}.npy").dtype == correct


def test_refused_record_changes_nothing():
    history = PredictionHistory(2, (1, 2), labeled=[1], epochs=3)
    good = torch.tensor([[[0, 1]], [[0, 1]]])
    both = torch.tensor([0, 1])
    for epoch in range(2):
        history.record(both, good, epoch=epoch, masks=good)
    refused = [
        ({"cases": both, "predictions": good, "epoch": 2}, "masks are needed"),
        ({"cases": both, "predictions": good, "epoch": 0, "masks": good}, "after epoch 0"),
        ({"cases": both, "predictions": good[:1], "epoch": 2, "masks": good}, "predictions must"),
        ({"cases": both, "predictions": good.float(), "epoch": 2, "masks": good}, "integers"),
        ({"cases": both, "predictions": good - 1, "epoch": 2, "masks": good}, "classes in"),
        ({"cases": both, "predictions": good, "epoch": 2, "masks": good[:1]}, "masks must"),
        ({"cases": both + 1, "predictions": good, "epoch": 2, "masks": good}, r"0\.\.1"),
    ]
    for arguments, problem in refused:
        with pytest.raises(ValueError, match=problem):
            history.record(**arguments)
    history.record(both, 1 - good, epoch=2, masks=good)
    # Twice equal, then flipped: 1 of 2 comparisons, 2 of 3 epochs correct.
    assert history.consistency(both).flatten().tolist() == [0.5] * 4
    assert history.correctness(case(1)).flatten().tolist() == pytest.approx([2 / 3] * 2)


def test_wrong_questions_are_refused():
    history = PredictionHistory(2, (1, 2), labeled=[1], epochs=3)
    with pytest.raises(ValueError, match="case 0 has no mask"):
        history.correctness(torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="count_classes"):
        history.frequencies(case(0))
    with pytest.raises(ValueError, match="different numbers"):
        PredictionHistory(2, (1, 2), labeled=[1, 1], epochs=3)
    with pytest.raises(ValueError, match="different numbers"):
        PredictionHistory(2, (1, 2), labeled=[2], epochs=3)


def test_empty_batches_have_empty_answers():
    history = PredictionHistory(2, (1, 2), labeled=[], epochs=3)
    nobody = torch.zeros(0, dtype=torch.int64)
    history.record(nobody, torch.zeros(0, 1, 2, dtype=torch.int64), epoch=0)
    assert history.consistency(nobody).shape == (0, 1, 2)
    assert history.correctness(nobody).shape == (0, 1, 2)


def test_more_epochs_than_planned_widen_the_counters(tmp_path, scratch):
    history = PredictionHistory(2, (1, 2), labeled=[0], epochs=255)
    for epoch in range(255):
        history.record(case(0), image(1, 0), epoch=epoch, masks=image(1, 1))
    checksum = history.commit(tmp_path, epoch=254)
    longer = PredictionHistory.restore(
        tmp_path, epoch=254, checksum=checksum, epochs=300, scratch=scratch
    )
    for epoch in range(255, 300):
        longer.record(case(0), image(0, 0), epoch=epoch, masks=image(1, 1))
    # Pixel 0: 299 comparisons, one of them a change; right in the first 255 of 300 epochs.
    assert longer.consistency(case(0)).flatten().tolist() == pytest.approx([298 / 299, 1])
    assert longer.correctness(case(0)).flatten().tolist() == pytest.approx([255 / 300, 0])
    with pytest.raises(ValueError, match="255 records, but 254 are planned"):
        PredictionHistory.restore(tmp_path, epoch=254, epochs=254)


def test_a_restored_history_knows_who_was_recorded(tmp_path):
    history = PredictionHistory(2, (1, 2), labeled=[], epochs=4)
    history.record(case(1), image(0, 0), epoch=0)
    history.record(case(1), image(0, 1), epoch=1)
    history.commit(tmp_path, epoch=1)
    restored = PredictionHistory.restore(tmp_path, epoch=1)
    restored.record(case(1), image(1, 1), epoch=1)
    assert restored.consistency(case(1)).tolist() == [[[1, 0]]]
    restored.record(case(1), image(1, 1), epoch=2)
    # 0 0 1 and 0 1 1: one agreement of two comparisons each.
    assert restored.consistency(case(1)).tolist() == [[[0.5, 0.5]]]


def test_a_history_of_volumes_is_restored(tmp_path):
    history = PredictionHistory(1, (2, 1, 2), labeled=[], epochs=4)
    for epoch, said in enumerate(([[[0, 0]], [[1, 1]]], [[[0, 1]], [[1, 1]]])):
        history.record(case(0), torch.tensor([said]), epoch=epoch)
    history.commit(tmp_path, epoch=1)
    restored = PredictionHistory.restore(tmp_path, epoch=1)
    assert restored.consistency(case(0)).tolist() == [[[[1, 0]], [[1, 1]]]]


def test_committed_arrays_are_mappable_and_named_by_epoch(tmp_path):
    history = PredictionHistory(3, (2, 4), labeled=[1], epochs=9)
    history.commit(tmp_path / "history", epoch=12)
    arrays = {
        path.name: np.load(path, mmap_mode="r") for path in (tmp_path / "history").glob("*.npy")
    }
    assert {name: array.shape for name, array in arrays.items()} == {
        "last_prediction-0012.npy": (3, 2, 4),
        "agreements-0012.npy": (3, 2, 4),
        "correct-0012.npy": (1, 2, 4),
    }
    assert all(array.dtype == np.uint8 for array in arrays.values())
    assert history.nbytes == 3 * 8 + 3 * 8 + 8
    assert committed_epochs(tmp_path / "history") == [12]
    assert committed_epochs(tmp_path / "nowhere") == []


def test_mapped_arrays_leave_no_files(tmp_path):
    history = PredictionHistory(3, (2, 4), labeled=[1], epochs=9, scratch=tmp_path)
    history.record(case(0), torch.ones(1, 2, 4, dtype=torch.uint8), epoch=0)
    assert list(tmp_path.iterdir()) == []
    assert history.consistency(case(0)).min() == 1


def test_a_full_disk_is_named_before_anything_is_recorded(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    history = PredictionHistory(3, (2, 4), labeled=[1], epochs=9, scratch=tmp_path)
    with pytest.raises(TrainingError, match=r"No space left.*history_storage=memory"):
        history.record(case(0), torch.ones(1, 2, 4, dtype=torch.uint8), epoch=0)
    assert list(tmp_path.iterdir()) == []
