"""Batches that do not fit are halved, and do not change what is predicted."""

import pytest
import torch

from segconf.errors import DataError
from segconf.inference.batch_runner import BatchRunner


class Limited:
    """A network that runs out of memory above `limit` images."""

    def __init__(self, limit, error):
        self.limit, self.error, self.sizes = limit, error, []

    def __call__(self, images):
        self.sizes.append(len(images))
        if len(images) > self.limit:
            raise self.error
        return images * 2, images.flatten(1) + 1


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError(),
    ],
)
def test_memory_errors_halve_the_batch_and_it_stays_halved(error):
    network = Limited(3, error)
    runner = BatchRunner(network, 8)
    images = torch.arange(10.0).reshape(10, 1, 1, 1)

    logits, features = runner(images)
    assert torch.equal(logits, images * 2)
    assert torch.equal(features, images.flatten(1) + 1)
    assert network.sizes == [8, 4, 2, 2, 2, 2, 2]
    assert runner.batch_size == 2


def test_a_single_image_that_does_not_fit_is_the_users_to_solve():
    runner = BatchRunner(Limited(0, MemoryError()), 2)
    with pytest.raises(DataError, match="single image"):
        runner(torch.zeros(1, 1, 1, 1))


def test_other_errors_are_not_swallowed():
    with pytest.raises(RuntimeError, match="shapes"):
        BatchRunner(Limited(0, RuntimeError("shapes differ")), 4)(torch.zeros(1, 1, 1, 1))


def test_the_last_batch_is_filled_up():
    network = Limited(4, MemoryError())
    images = torch.arange(5.0).reshape(5, 1, 1, 1)
    logits, features = BatchRunner(network, 4)(images)
    assert torch.equal(logits, images * 2)
    assert torch.equal(features, images.flatten(1) + 1)
    assert network.sizes == [4, 4]


def test_the_time_of_an_image_is_that_in_a_full_batch(monkeypatch):
    clock = iter([0.0, 8.0, 100.0, 104.0])  # before and after each of two batches
    monkeypatch.setattr("segconf.inference.batch_runner.time.perf_counter", lambda: next(clock))
    runner = BatchRunner(lambda images: (images, None), 4)
    assert runner.seconds_per_image is None
    assert (
        runner(torch.zeros(5, 1, 1, 1))[1] is None
    )  # four images, and one that is filled up to four
    assert runner.seconds_per_image == 12 / 8
