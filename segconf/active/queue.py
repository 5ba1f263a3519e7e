"""The images to annotate, in their order, and the list that annotators work off."""

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segconf.active.pool import BATCH, Pool
from segconf.data.cache import Progress
from segconf.devices import resolve_device
from segconf.errors import DataError
from segconf.files import write_text
from segconf.images.encoding import write_png
from segconf.inference.model import Model
from segconf.overlays.contact_sheet import Tile, contact_sheet
from segconf.overlays.overlay import as_share
from segconf.results.maps import Maps

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
    """Write the list that annotators work off, and `segconf train --labels-from-query` reads."""
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


SHOWN = 120
"""Images on a sheet, the first of the queue: more would not be looked at."""


def write_contact_sheet(
    queue: Queue, path: Path, *, device: str = "auto", on_progress: Progress | None = None
) -> None:
    """Write overlays of the chosen images, on the grid of the network, in their order."""
    model = Model(queue.run, device=resolve_device(device), batch_size=BATCH)
    choices = queue.choices[:SHOWN]
    tiles: list[Tile] = []
    for pixels in queue.pool.batches([choice.number for choice in choices]):
        for image, logits in zip(pixels, model.grid_logits(pixels), strict=True):
            rank, choice = len(tiles) + 1, choices[len(tiles)]
            maps = Maps.of_grid(logits)
            tiles.append(
                Tile(
                    image=np.moveaxis(image, -1, 0),
                    mask=maps.mask[0],
                    confidence=as_share(maps.levels[0]),
                    title=f"{rank}.  {choice.id}",
                    words=choice.reason.partition(",")[0].replace(" in review", ""),
                )
            )
        if on_progress is not None:
            on_progress("contact sheet", len(tiles), len(choices))
    write_png(path, contact_sheet(tiles, scale=model.scale))
