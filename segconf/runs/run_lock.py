"""One process at a time changes a run."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from segconf.locks import locked
from segconf.runs.run_folder import RunFolder

TASK = "trains or calibrates it"
Options = ParamSpec("Options")
Result = TypeVar("Result")
_Changing = Callable[Concatenate[Path | str, Options], Result]


def alone_in_run(change: _Changing[Options, Result]) -> _Changing[Options, Result]:
    """A function of a run that holds its lock; a training that calls it holds it already.

    It raises `LockedError` where another process is at work.
    """

    @wraps(change)
    def alone(run: Path | str, *args: Options.args, **options: Options.kwargs) -> Result:
        RunFolder(Path(run)).data()  # says so if this is no run folder, before a lock lies in it
        with locked(Path(run), wait=False, task=TASK, again=True):
            return change(run, *args, **options)

    return alone
