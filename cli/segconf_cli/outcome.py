"""What a command did, for scripts: `--json`, and `--quiet` without progress and notes."""

import dataclasses
import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated

import typer

from segconf import __version__
from segconf_cli.display import is_silent, messages, results

_USAGE = 2
PANEL = "For scripts"
Quiet = Annotated[
    bool,
    typer.Option("--quiet", help="No progress and no notes.", rich_help_panel=PANEL),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="One JSON object on standard output.", rich_help_panel=PANEL),
]


class Outcome:
    """The JSON object of the command that runs; its exit code and error come at the end."""

    def __init__(self) -> None:
        """No command has begun."""
        self.command = ""
        self.as_json = False
        self.facts: dict[str, object] = {}

    def begin(self, command: str, *, as_json: bool) -> None:
        """Forget what an earlier command of this process did."""
        self.command, self.as_json, self.facts = command, as_json, {}

    def line(self, exit_code: int, error: str | None) -> str:
        """The object in one line; null stands for numbers that are not finite."""
        about = {"command": self.command, "version": __version__, "exit_code": exit_code}
        if exit_code == _USAGE and not self.command:
            error = "the command line cannot be read; standard error says why"
        failed = {} if error is None else {"error": error}
        return json.dumps({**about, **failed, **self.facts}, allow_nan=False)


outcome = Outcome()


def record(**facts: object) -> None:
    """Add facts to the JSON object of the command that runs."""
    outcome.facts |= {name: plain(value) for name, value in facts.items()}


def next_step(command: str) -> None:
    """Say which command makes sense next."""
    messages().print(f"Next: {command}", highlight=False)
    record(next=command)


def scriptable(command: Callable[..., None]) -> Callable[..., None]:
    """The command with `--quiet` and `--json`."""
    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("quiet", Quiet), ("as_json", AsJson))
    ]

    @wraps(command)
    def run(*, quiet: bool, as_json: bool, **values: object) -> None:
        outcome.begin(command.__name__, as_json=as_json)
        messages().quiet = quiet or is_silent()
        results().quiet = as_json or is_silent()
        command(**values)

    parameters = [*signature.parameters.values(), *options]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return run


def print_outcome(exit_code: int, error: str | None = None) -> None:
    """Print the object, where it was asked for."""
    if outcome.as_json and not is_silent():
        sys.stdout.write(outcome.line(exit_code, error) + "\n")
        sys.stdout.flush()


def plain(value: object) -> object:
    """The same content in the types of JSON."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case _ if dataclasses.is_dataclass(value):
            return {
                field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
            }
        case _:
            raise TypeError(f"{type(value).__name__} has no place in JSON")
