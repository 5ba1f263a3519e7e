"""Count on one core: pieces of this size gain nothing from more."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Borrow the number of threads of torch, set it to one, and give it back.

    Threads that share a piece wait for each other after every operation, and those that count
    pieces of their own share one table: both were measured to be slower than a single thread.
    """
    with _LOCK:
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(threads)
