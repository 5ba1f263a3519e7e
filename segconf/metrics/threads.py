"""How many threads count."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_LOCK = threading.Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Borrow the number of threads of torch, set it to one, and give it back.

    Threads that share a piece wait for each other after every operation, and threads with pieces of
    their own wait for the one table of counts: both are slower than one thread. Only one caller at
    a time gets here, since the number is that of the whole process.
    """
    with _LOCK:
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(1)
            yield
        finally:
            torch.set_num_threads(threads)
