"""What a training shows while it runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from segconf.metrics.definitions import METRICS
from segconf.runs.epochs import EpochSummary, Scores
from segconf.training.epoch import TrainingListener
from segconf_cli.display import messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from segconf.data.splits import Split


@contextmanager
def live_view() -> Iterator[LiveView]:
    """A listener that draws; the bars vanish at the end, the line of every epoch stays."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[terms]}", markup=False),
    )
    console = messages()
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield LiveView(progress)


class LiveView(TrainingListener):
    """Bars for preparation, epochs and steps, and one line per epoch."""

    def __init__(self, progress: Progress) -> None:
        """Draw into these bars; `folders` are those of the runs that have started."""
        self.folders: list[Path] = []
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._total: TaskID | None = None
        self._epochs = 0

    def on_prepare(self, label: str, done: int, total: int) -> None:
        """Count the decoded images."""
        self._show(label, done, total)
        if not self._progress.console.is_terminal and done == total:
            self._print(f"{label}: {total}")

    def on_split(self, split: Split) -> None:
        """Say what is labeled, and in which unit labels are counted."""
        labels = f"{split.labels} {split.unit}"
        if split.unit == "groups":
            labels += f" ({len(split.labeled)} images or slices)"
        validation = sum(case.is_labeled for case in split.validation)
        self._print(
            f"labeled: {labels}; unlabeled: {len(split.unlabeled)}; validation: {validation}"
        )

    def on_member(self, number: int, members: int) -> None:
        """Say which network of an ensemble is next."""
        self._print(f"member {number + 1} of {members}")

    def on_total(self, label: str, done: int, total: int) -> None:
        """Count what outlasts a training, such as the trainings."""
        if self._total is None:
            self._total = self._progress.add_task(label, total=total, terms="")
        self._progress.update(self._total, completed=done, total=total)

    def on_start(self, folder: Path, epoch: int, epochs: int) -> None:
        """Exchange the bars of the preparation for those of the training."""
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks.clear()
        self._epochs = epochs
        self.folders.append(folder)
        self._print(f"run folder: {folder}")
        self._show("epoch", epoch, epochs)

    def on_step(self, step: int, steps: int, terms: Mapping[str, Tensor]) -> None:
        """Move the bar and show the terms."""
        # Short names: bar, time left and terms have to fit into 80 columns.
        text = "  ".join(f"{name[:4]}. {float(value):.3f}" for name, value in terms.items())
        self._show("step", step, steps, text)

    def on_epoch(self, summary: EpochSummary) -> None:
        """Write the line of the epoch."""
        self._show("epoch", summary.epoch + 1, self._epochs)
        terms = "".join(f"  {name} {value:.3f}" for name, value in summary.terms.items())
        scores = "".join(
            f"  {name} {_scores(value)}"
            for name, value in (("validation:", summary.scores), ("EMA:", summary.ema_scores))
            if value is not None
        )
        self._print(f"epoch {summary.epoch + 1}/{self._epochs}{terms}{scores}")

    def _show(self, label: str, done: int, total: int, terms: str = "") -> None:
        if label not in self._tasks:
            self._tasks[label] = self._progress.add_task(label, total=total, terms="")
        self._progress.update(self._tasks[label], completed=done, total=total, terms=terms)

    def _print(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)


def _scores(scores: Scores) -> str:
    name, value = scores.quality
    quality = f"{METRICS[name].title} {value:.3f}"
    return f"{quality}  AURC {1e3 * scores.aurc:.2f}e-3  ECE {1e2 * scores.ece:.2f}e-2"
