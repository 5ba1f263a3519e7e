"""Many small pieces of work on two cores."""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")

_LOCK = threading.Lock()
_MAX_WORKERS = 2  # each holds a piece and what is computed from it: more would cost more memory


def for_each(function: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call a function for every item, from two threads if torch may use as many.

    Each piece is computed on one core: threads that share a piece would have to wait for each other
    after every operation, which is slow, and very slow on a machine that has other work to do. The
    number of threads of torch is borrowed and given back.
    """
    with _LOCK:
        threads = torch.get_num_threads()
        workers = min(threads, _MAX_WORKERS, len(items))
        try:
            torch.set_num_threads(1)
            if workers > 1:
                # Going through the results raises what a worker raised.
                for _ in _pool(os.getpid()).map(function, items):
                    pass
            else:
                for item in items:
                    function(item)
        finally:
            torch.set_num_threads(threads)


@functools.cache
def _pool(process: int) -> ThreadPoolExecutor:
    """The threads of a process; a forked one does not have those of its parent.

    New threads for every call would each come with a memory pool that is never given back.
    """
    return ThreadPoolExecutor(_MAX_WORKERS, thread_name_prefix=f"segconf-{process}")
