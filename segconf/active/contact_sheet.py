"""The chosen images as one picture, with what the network says about them now."""

from pathlib import Path

import numpy as np

from segconf.active.pool import BATCH
from segconf.active.queue import Queue
from segconf.data.cache import Progress
from segconf.devices import resolve_device
from segconf.images.png import write_png
from segconf.inference.grid import Maps
from segconf.inference.model import Model
from segconf.overlays.contact_sheet import Tile, contact_sheet
from segconf.overlays.picture import as_share

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
