"""The `segconf` command and its exit codes."""

import atexit
import gc
import re
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from segconf import __version__
from segconf.errors import SegconfError
from segconf_cli.active import active
from segconf_cli.benchmark import benchmark
from segconf_cli.calibrate import calibrate
from segconf_cli.compare import compare
from segconf_cli.data import data
from segconf_cli.demo import demo
from segconf_cli.display import messages
from segconf_cli.doctor import doctor
from segconf_cli.evaluate import evaluate
from segconf_cli.export import export
from segconf_cli.history import history
from segconf_cli.models import models
from segconf_cli.predict import predict
from segconf_cli.query import query
from segconf_cli.review import review
from segconf_cli.score import score
from segconf_cli.surrogates import surrogates
from segconf_cli.train import train
from segconf_cli.triage import triage

app = typer.Typer(
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
    "Predict and review": (predict, review, export, triage),
    "Annotate": (query, active),
    "Compare methods": (compare, score, benchmark, surrogates),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)


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


def with_flags(message: str) -> str:
    """The library's message in the words of the command line: `budget = 0:` is `--budget 0:`."""
    names = {
        option.removeprefix("--"): option
        for command in typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }

    def flag(match: re.Match[str]) -> str:
        option = names.get(match["name"].replace("_", "-"))
        if option is None:
            return match[0]
        return f"{option}:" if match["value"] is None else f"{option} {match['value']}:"

    pattern = r"^(?P<name>[a-z_]+)(?:(?: =)? (?P<value>[^:\n]+))?:"
    return re.sub(pattern, flag, message, flags=re.M)


def main() -> None:
    """Run the command; what a user can fix is one message and exit code 2, not a traceback."""
    _collect_rarely()
    try:
        app()
    except SegconfError as error:
        messages().print(
            f"error: {with_flags(str(error))}", style="red", markup=False, highlight=False
        )
        sys.exit(2)
    except KeyboardInterrupt:
        messages().print("interrupted", style="yellow")
        sys.exit(130)
