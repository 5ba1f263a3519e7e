"""One line per epoch: what was trained, what was measured."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from segconf.errors import CheckpointError
from segconf.files import write_text


@dataclass(frozen=True, slots=True)
class Scores:
    """Validation metrics, raw (see the definitions in `segconf.metrics`)."""

    miou: float
    aurc: float
    ece: float
    nll: float


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """Mean loss terms of an epoch and, where it was validated, the scores."""

    epoch: int
    steps: int
    segmentation: float
    correctness: float
    consistency: float
    scores: Scores | None = None
    averaged_scores: Scores | None = None
    """Scores of the moving average of the weights."""

    @property
    def selected(self) -> Scores | None:
        """Scores of the weights that would be kept: the averaged ones where there are any."""
        return self.averaged_scores or self.scores


COLUMNS = (
    *("epoch", "steps", "segmentation", "correctness", "consistency"),
    *(field.name for field in fields(Scores)),
    *(f"averaged_{field.name}" for field in fields(Scores)),
)


def write_epochs(path: Path, summaries: Sequence[EpochSummary]) -> None:
    """Write `epochs.csv`; what was not measured is left empty.

    Times are not among the columns: an interrupted and continued run writes the same file.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for summary in summaries:
        row = {name: getattr(summary, name) for name in COLUMNS[:5]}
        if summary.scores is not None:
            row |= asdict(summary.scores)
        if summary.averaged_scores is not None:
            averaged = asdict(summary.averaged_scores)
            row |= {f"averaged_{name}": value for name, value in averaged.items()}
        writer.writerow(row)
    write_text(path, text.getvalue())


def as_plain(summary: EpochSummary) -> dict[str, object]:
    """A summary as a checkpoint keeps it: nothing but numbers, text and dictionaries."""
    return asdict(summary)


def from_plain(values: dict[str, object]) -> EpochSummary:
    """The inverse of `as_plain`."""
    scores = {
        name: Scores(**value) if isinstance(value := values[name], dict) else None
        for name in ("scores", "averaged_scores")
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
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = {row["epoch"]: float(row["training_seconds"]) for row in csv.DictReader(file)}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{table}: cannot be read as the times of a training ({error}). Remove the file to go "
            "on without them."
        ) from error
    return sum(rows.values())
