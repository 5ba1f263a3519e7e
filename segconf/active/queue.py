"""The images to annotate, in their order, and the list that annotators work off."""

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

from segconf.active.pool import Pool
from segconf.errors import DataError
from segconf.files import write_text

COLUMNS = ("rank", "id", "score", "reason", "run")


@dataclass(frozen=True, slots=True)
class Choice:
    """An image to annotate: its number in the pool, its score, and why it was chosen."""

    number: int
    id: str
    score: float
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """The images to annotate in their order, the pool they are from, and what to know about it."""

    run: Path
    pool: Pool
    choices: tuple[Choice, ...]
    notes: tuple[str, ...] = ()


def write_queue(queue: Queue, path: Path) -> None:
    """Write the list that annotators work off, and `segconf train --resume-labels` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    run = _relative(queue.run, path.parent)
    for rank, choice in enumerate(queue.choices, start=1):
        writer.writerow([rank, choice.id, f"{choice.score:.6g}", choice.reason, run])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text.getvalue())
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or error}). Choose another --out."
        ) from error


def _relative(run: Path, folder: Path) -> str:
    """The run as seen from the list, so that both can move together."""
    try:
        return Path(os.path.relpath(run.absolute(), folder.absolute())).as_posix()
    except ValueError:  # another drive
        return run.absolute().as_posix()
