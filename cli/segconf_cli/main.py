"""The `segconf` command and its exit codes."""

import atexit
import gc
import io
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, TextIO

import typer
from typer.core import TyperGroup

from segconf import __version__
from segconf.errors import SegconfError
from segconf_cli.active import active
from segconf_cli.benchmark import benchmark
from segconf_cli.calibrate import calibrate
from segconf_cli.compare import compare
from segconf_cli.data import data
from segconf_cli.demo import demo
from segconf_cli.display import is_silent, messages
from segconf_cli.doctor import doctor
from segconf_cli.evaluate import evaluate
from segconf_cli.export import export
from segconf_cli.history import history
from segconf_cli.models import models
from segconf_cli.outcome import outcome, print_outcome, scriptable
from segconf_cli.package import package
from segconf_cli.predict import predict
from segconf_cli.query import query
from segconf_cli.review import review
from segconf_cli.score import score
from segconf_cli.surrogates import surrogates
from segconf_cli.train import train
from segconf_cli.triage import triage

BUG, USER_CAN_FIX, INTERRUPTED = 1, 2, 130
_LONGEST = 300
_PRINTERS = ("click", "rich", "segconf_cli", "typer")
_ANYTHING = "a file, a device or a connection"
_CHECK = "Check that it may be read or written and has space."
_LESS = "Use smaller images or batches, or a machine with more memory."


class _Commands(TyperGroup):
    """The commands, whose errors keep their kind: typer takes some for a closed terminal."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # words of typer's library
            raise
        except (OSError, EOFError, KeyboardInterrupt) as error:
            raise _Escaped from error


app = typer.Typer(
    cls=_Commands,
    name="segconf",
    help="Medical image segmentation with a calibrated confidence map.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:  # noqa: FBT001 - the signature is typer's
    if asked:
        typer.echo(f"segconf {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Medical image segmentation with a calibrated confidence map.

    Research use only: not a medical device.
    """


COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Begin": (demo, doctor, data, models),
    "Train and measure": (train, evaluate, calibrate, history),
    "Predict and review": (predict, review, export, triage, package),
    "Annotate": (query, active),
    "Compare methods": (compare, score, benchmark, surrogates),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(scriptable(command))


_OBJECTS_PER_COLLECTION = 20_000


def _collect_rarely() -> None:
    """Start and end without searching the libraries for garbage.

    Importing them makes a million objects. Looking for cycles after every 700 takes a quarter of
    the time of the import, and once more among all of them at the end.
    """
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    atexit.register(_spare_libraries)


def _spare_libraries() -> None:
    # A training has loaded triton, which reports what nobody collects.
    if "triton" not in sys.modules:
        gc.freeze()


def with_flags(message: str, command: str) -> str:
    """The library's message in the words of a command: `budget = 0:` is `--budget 0:`.

    What is the path of a file or a folder stays as it is.
    """
    known = typer.main.get_command(app).commands.get(command)  # type: ignore[attr-defined]
    names = {
        option.removeprefix("--"): option
        for parameter in (known.params if known else ())
        for option in parameter.opts
        if option.startswith("--")
    }

    def flag(match: re.Match[str]) -> str:
        option = names.get(match["name"].replace("_", "-"))
        if option is None or os.path.lexists(match[0].removesuffix(":")):
            return match[0]
        return f"{option}:" if match["value"] is None else f"{option} {match['value']}:"

    pattern = r"^(?P<name>[a-z_]+)(?:(?: =)? (?P<value>[^:\n]+))?:"
    return re.sub(pattern, flag, message, flags=re.M)


class _Escaped(Exception):  # noqa: N818 - a parcel for the error inside
    """What a command did not handle, on its way past typer, which has its own words for some."""


def main() -> None:
    """Run the command and end with its exit code; no error ends in a traceback."""
    _collect_rarely()
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started the command
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper):  # names that are not Unicode can be shown
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run())


def _run() -> int:
    """Exit code: 0 done, 2 the user can fix it, 3 some images are broken, 1 a bug."""
    outcome.begin("", as_json="--json" in sys.argv[1:])  # until the options are read
    try:
        app()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            return _explain(end.__context__)
        return _flushed(end.code if isinstance(end.code, int) else int(end.code is not None))
    except _Escaped as parcel:
        return _explain(parcel.__cause__ or parcel)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - nobody else says it in words
        return _explain(error)
    return _flushed(0)


def _flushed(code: int) -> int:
    """The exit code, after everything that was printed has been accepted."""
    try:
        print_outcome(code)
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        return _explain(error)
    return code


def _explain(error: BaseException) -> int:
    """Say what happened in one line; the traceback of a bug goes to a file."""
    match error:
        case SegconfError():
            return _say(f"error: {with_flags(str(error), outcome.command)}", USER_CAN_FIX)
        case KeyboardInterrupt():
            return _say("interrupted", INTERRUPTED, style="yellow")
        case BrokenPipeError():
            _silence(sys.stdout)
            return 0  # whoever read the output has seen enough
        case OSError():
            place = error.filename or _ANYTHING
            if error.filename is None and _is_printing(error):
                _silence(sys.stdout)
                place = "standard output"
            reason = error.strerror or str(error)
            return _say(f"error: {place}: {reason}. {_CHECK}", USER_CAN_FIX)
        case MemoryError():
            return _say(f"error: the memory is full. {_LESS}", USER_CAN_FIX)
    summary = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
    where = _write_traceback(error)
    return _say(f"error: a bug in segconf: {summary}. Please report it with {where}.", BUG)


def _say(message: str, code: int, *, style: str = "red") -> int:
    with suppress(OSError, ValueError):
        messages().quiet = is_silent()
        messages().print(message, style=style, highlight=False)
    with suppress(OSError, ValueError):
        print_outcome(code, message.removeprefix("error: "))
    return code


def _write_traceback(error: BaseException) -> str:
    """Keep what is needed to find a bug; the place of the file."""
    text = "".join(traceback.format_exception(error))
    about = f"segconf {__version__}, Python {sys.version}, {sys.platform}\n{sys.argv}\n\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", delete=False,
            prefix="segconf-", suffix=".txt",
        ) as file:  # fmt: skip
            file.write(about + text)
    except OSError:
        return "the command that you ran"
    return file.name


def _is_printing(error: BaseException) -> bool:
    """Whether an error comes from what prints, and not from a file of the library."""
    modules = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
    return modules[-1].partition(".")[0] in _PRINTERS


def _silence(stream: TextIO) -> None:
    """Let the end of the process not fail on a stream that takes nothing any more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
