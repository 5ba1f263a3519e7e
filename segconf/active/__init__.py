"""Active learning: which images to annotate next, and what annotating them would have brought."""

from segconf.active.query import Query, query
from segconf.active.queue import Choice, Queue, write_queue
from segconf.active.strategies import STRATEGIES, Strategy, as_strategy

__all__ = [
    "STRATEGIES",
    "Choice",
    "Query",
    "Queue",
    "Strategy",
    "as_strategy",
    "query",
    "write_queue",
]
