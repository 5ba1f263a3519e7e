"""How results and progress look. Results go to standard output, everything else to the error."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Console(Console):
    """A console whose job goes on when nobody reads its output any more.

    Text is shown as it is: names and advice hold brackets, which are no markup.
    """

    def on_broken_pipe(self) -> None:
        """Print nothing from now on; rich would end the process."""
        self.quiet = True
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())


@cache
def results() -> Console:
    """Console for what was asked for."""
    return _Console(soft_wrap=True, markup=False, emoji=False, quiet=is_silent())


@cache
def messages() -> Console:
    """Console for progress, notes and errors."""
    return _Console(stderr=True, soft_wrap=True, markup=False, emoji=False, quiet=is_silent())


def is_silent() -> bool:
    """Of the processes that torchrun starts, only the first one talks."""
    return os.environ.get("RANK", "0") != "0"


def warn(text: str) -> None:
    """Name a problem that did not end the command; `--quiet` does not hide it."""
    console = messages()
    quiet, console.quiet = console.quiet, is_silent()
    console.print(text, style="yellow", highlight=False)
    console.quiet = quiet


def counted(number: int, noun: str) -> str:
    """A number and what it counts: 1 image, 2 images."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Rate(ProgressColumn):
    """What is counted, per second."""

    def render(self, task: Task) -> Text:
        """Nothing before the first second has passed."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.1f}/s" if speed else "")


@contextmanager
def counting() -> Iterator[Callable[[str, int, int], None]]:
    """Bars for things that are counted: one per label, shown as soon as it starts."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    tasks = {}
    console = messages()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:

        def report(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = progress.add_task(label, total=total)
            progress.update(tasks[label], completed=done, total=total)

        yield report
