"""One line per epoch: `epochs.csv`, times, and curves for TensorBoard."""

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from segconf.config.schema import TrainingConfig
from segconf.csv_tables import number_in, read_table, table_text
from segconf.errors import CheckpointError
from segconf.files import read_bytes, write_bytes, write_text


@dataclass(frozen=True, slots=True)
class Scores:
    """Validation metrics, raw (see the definitions in `segconf.metrics`)."""

    miou: float | None
    """None for labels."""
    aurc: float
    ece: float
    nll: float
    accuracy: float | None = None
    """Of labels; None for masks."""

    @property
    def quality(self) -> tuple[str, float]:
        """Name and value of what the best epoch is chosen by: the mIoU, or accuracy of labels."""
        if self.accuracy is not None:
            return "accuracy", self.accuracy
        return "miou", math.nan if self.miou is None else self.miou


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """Mean loss terms of an epoch and, where it was validated, the scores."""

    epoch: int
    steps: int
    terms: Mapping[str, float]
    """Loss terms of the method before weighting, by name."""
    scores: Scores | None = None
    ema_scores: Scores | None = None
    """Scores of the moving average of the weights."""
    stalled: int | None = None
    """With `training.patience`: validations in a row that brought no better mIoU or AURC."""

    @property
    def selected(self) -> Scores | None:
        """Scores of the weights that would be kept: those of the EMA where there is one."""
        return self.ema_scores or self.scores


def write_epochs(path: Path, summaries: Sequence[EpochSummary]) -> None:
    """Write `epochs.csv`; what was not measured is left empty.

    Times are not among the columns: an interrupted and continued run writes the same file.
    """
    scores = _score_columns(summaries)
    terms = dict.fromkeys(name for summary in summaries for name in summary.terms)
    columns = ["epoch", "steps", *terms, *scores, *(f"ema_{name}" for name in scores)]
    if any(summary.stalled is not None for summary in summaries):
        columns.append("stalled")
    lines = []
    for summary in summaries:
        row: dict[str, object] = {"epoch": summary.epoch, "steps": summary.steps, **summary.terms}
        if summary.scores is not None:
            row |= asdict(summary.scores)
        if summary.ema_scores is not None:
            row |= {f"ema_{name}": value for name, value in asdict(summary.ema_scores).items()}
        if summary.stalled is not None:
            row["stalled"] = summary.stalled
        lines.append([row.get(name, "") for name in columns])
    write_text(path, table_text(columns, lines))


TIMES = ("epoch", "training_seconds", "validation_seconds")


def append_time(path: Path, epoch: int, training: float, validation: float) -> None:
    """Add a line to `timing.csv`, whatever the lines before it hold.

    Raises:
        OSError: what is there cannot be read.
        FileError: it cannot be written.
    """
    before = read_bytes(path) if os.path.lexists(path) else table_text(TIMES, []).encode()
    line = f"{epoch},{training:.3f},{validation:.3f}\n"
    write_bytes(path, before + line.encode())


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training of a network has come, by its `epochs.csv`."""

    epochs: int
    best_epoch: int | None
    """Counted from 1; None where nothing was validated."""
    stalled: int | None
    """As in the last epoch's summary."""

    def is_finished(self, training: TrainingConfig) -> bool:
        """Whether all epochs are there, or the patience is at its end."""
        return self.epochs >= training.epochs or has_converged(self.stalled, training.patience)


def has_converged(stalled: int | None, patience: int | None) -> bool:
    """Whether so many validations without improvement end a run."""
    return patience is not None and stalled is not None and stalled >= patience


def read_progress(run: Path) -> list[Progress]:
    """Progress of the network of a run, or of those of an ensemble that have begun.

    Raises:
        CheckpointError: a table cannot be read.
    """
    way_out = "Remove the file: continuing the run writes it again."
    found = []
    for table in epoch_tables(run):
        rows = read_table(table, ["epoch"], error=CheckpointError, way_out=way_out)
        try:
            found.append(_progress(rows))
        except ValueError as error:
            raise CheckpointError(f"{table}: {error}. {way_out}") from error
    return found


QUALITY = ("ema_miou", "miou", "ema_accuracy", "accuracy")
"""Columns that the best epoch is chosen by; the first that has a value counts."""


def _progress(rows: Sequence[Mapping[str, str]]) -> Progress:
    scored = {
        number: float(quality)
        for number, row in enumerate(rows, start=1)
        for quality in [next((row[name] for name in QUALITY if row.get(name)), "")]
        if quality
    }
    best = max(scored, key=lambda epoch: scored[epoch]) if scored else None
    stalled = rows[-1].get("stalled") if rows else None
    return Progress(len(rows), best, int(stalled) if stalled else None)


def epoch_tables(run: Path) -> list[Path]:
    """`epochs.csv` of a run, or those of the members of an ensemble."""
    return [*run.glob("epochs.csv"), *sorted(run.glob("members/*/epochs.csv"))]


def _score_columns(summaries: Sequence[EpochSummary]) -> list[str]:
    """Names of the scores: quality first."""
    known = [summary.scores for summary in summaries if summary.scores is not None]
    quality = known[0].quality[0] if known else "miou"
    return [quality, "aurc", "ece", "nll"]


def as_plain(summary: EpochSummary) -> dict[str, object]:
    """A summary as a checkpoint keeps it: nothing but numbers, text and dictionaries."""
    return asdict(summary)


def from_plain(values: dict[str, object]) -> EpochSummary:
    """The inverse of `as_plain`."""
    scores = {
        name: Scores(**value) if isinstance(value := values[name], dict) else None
        for name in ("scores", "ema_scores")
    }
    return EpochSummary(**{**values, **scores})  # type: ignore[arg-type]


def training_seconds(run: Path) -> float | None:
    """Time that the training steps of a run took, validation not included; None if not known.

    The networks of an ensemble add up. An epoch that was repeated after an interruption counts
    once: its last time.
    """
    tables = [*run.glob("timing.csv"), *run.glob("members/*/timing.csv")]
    return sum(_seconds(table) for table in tables) if tables else None


def _seconds(table: Path) -> float:
    way_out = "The file holds the times of a training: remove it to go on without them."
    columns = ["epoch", "training_seconds"]
    rows = read_table(table, columns, error=CheckpointError, way_out=way_out)
    try:
        return sum({row["epoch"]: number_in(row, columns[1]) for row in rows}.values())
    except ValueError as error:
        raise CheckpointError(f"{table}: {error}. {way_out}") from error


@contextmanager
def open_events(
    folder: Path, epoch: int, *, enabled: bool
) -> Iterator[Callable[[EpochSummary], None]]:
    """A function that writes the numbers of an epoch; it does nothing without TensorBoard.

    Args:
        folder: `events` of a run.
        epoch: the first that will be written; curves of an earlier attempt end before it.
        enabled: False on the processes that write nothing.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        enabled = False
    if not enabled:
        yield lambda _summary: None
        return
    with SummaryWriter(str(folder), purge_step=epoch + 1) as writer:

        def write(summary: EpochSummary) -> None:
            for name, value in _scalars(summary).items():
                writer.add_scalar(name, value, summary.epoch + 1)
            writer.flush()

        yield write


def _scalars(summary: EpochSummary) -> dict[str, float]:
    scalars = {f"loss/{name}": value for name, value in summary.terms.items()}
    for group, scores in (
        ("validation", summary.scores),
        ("validation_ema", summary.ema_scores),
    ):
        if scores is not None:
            measured = {k: v for k, v in asdict(scores).items() if v is not None}
            scalars |= {f"{group}/{name}": value for name, value in measured.items()}
    return scalars
