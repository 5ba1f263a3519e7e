"""What a benchmark shows while it runs: a line per run on a terminal, changes elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from segconf_cli.display import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from segconf.comparison.launcher import Status

ORDER = ("failed", "training", "evaluating", "calibrating", "waiting", "finished")
STYLES = {"failed": "red", "waiting": "dim", "finished": "green"}
HOUR = 3600


@contextmanager
def benchmark_view() -> Iterator[BenchmarkView]:
    """A view of all runs; on a terminal it is drawn anew in place."""
    console = messages()
    view = BenchmarkView(console)
    if not console.is_terminal:
        yield view
        return
    with Live(get_renderable=view.render, console=console, refresh_per_second=2, transient=True):
        yield view


class BenchmarkView:
    """The status of every run, and how much of all the work is done."""

    def __init__(self, console: Console) -> None:
        """Start without any run."""
        self._console = console
        self._statuses: dict[str, Status] = {}
        # Runs are slow: the time left follows from the last hour, not by rich's half a minute.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            speed_estimate_period=HOUR,
        )
        self._task = self._progress.add_task("")

    def show(self, status: Status) -> None:
        """Take note of a change."""
        before = self._statuses.get(status.name)
        self._statuses[status.name] = status
        everything = self._statuses.values()
        ended = sum(one.state in {"finished", "failed"} for one in everything)
        self._progress.update(
            self._task,
            description=f"{ended} of {len(everything)} runs",
            completed=sum(one.fraction for one in everything),
            total=len(everything),
        )
        changed = before is not None and before.state != status.state
        if changed and not self._console.is_terminal:
            self._console.print(
                f"{status.name}: {_describe(status)} ({ended} of {len(everything)} runs ended)",
                highlight=False,
            )

    def render(self) -> RenderableType:
        """The overall bar first: it stays in sight when there are more runs than lines."""
        table = Table.grid(padding=(0, 2))
        for status in sorted(self._statuses.values(), key=lambda one: ORDER.index(one.state)):
            # As text: a reason such as "size was [32, 32]" is no markup.
            style = STYLES.get(status.state, "")
            table.add_row(status.name, Text(_describe(status)), style=style)
        return Group(self._progress, table)


def _describe(status: Status) -> str:
    match status.state:
        case "training":
            return f"training, epoch {min(status.epoch + 1, status.epochs)} of {status.epochs}"
        case "waiting" if status.epoch:
            return f"waiting, {status.epoch} of {status.epochs} epochs done"
        case "failed":
            return f"failed: {status.reason}"
        case state:
            return state
