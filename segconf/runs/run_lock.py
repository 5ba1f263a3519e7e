"""One process at a time changes a run."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from segconf.locks import locked
from segconf.runs.run_folder import RunFolder

TASK = "trains or calibrates it"
Given = ParamSpec("Given")
Result = TypeVar("Result")


def alone_in_run(change: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function whose first argument is `run`, and that holds the lock of it.

    A training that calls it holds the lock already. Where another process is at work, it raises
    `LockedError`.
    """

    @wraps(change)
    def alone(*args: Given.args, **options: Given.kwargs) -> Result:
        run = Path(str(args[0] if args else options["run"]))
        RunFolder(run).data()  # says so if this is no run folder, before a lock lies in it
        with locked(run, wait=False, task=TASK, again=True):
            return change(*args, **options)

    return alone
