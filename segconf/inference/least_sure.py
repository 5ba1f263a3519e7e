"""Contact sheet of the images whose labels are least sure."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from segconf.errors import DataError
from segconf.images.encoding import write_png
from segconf.inference.model import Model
from segconf.inference.sources import Source
from segconf.overlays.contact_sheet import Tile, contact_sheet
from segconf.results.label_rows import LabelRow

FILE_NAME = "least_sure.png"
SHOWN = 60
"""Images on the sheet: more would not be looked at."""
_NAMED = 2


def write_least_sure(
    model: Model, rows: Iterable[LabelRow], sources: Sequence[Source], path: Path
) -> None:
    """Draw the images with the lowest confidence, the lowest first, with their likeliest classes.

    Nothing is written where no image was predicted.

    Args:
        model: that predicted them.
        rows: of all images.
        sources: where the images are.
        path: the picture to write.
    """
    files = {source.case: source.path for source in sources}
    sure = {row: row.confidence for row in rows if row.case in files}
    known = {row: value for row, value in sure.items() if value is not None}
    chosen = sorted(known, key=lambda row: (known[row], row.case))[:SHOWN]
    tiles: list[Tile] = []
    for row in chosen:
        try:
            pixels = model.read(files[row.case]).pixels  # (C, H, W)
        except DataError:
            continue  # changed since it was predicted
        words = _likeliest(row, model.config.data.class_names)
        tiles.append(Tile(pixels, None, None, row.case, words))
    if tiles:
        write_png(path, contact_sheet(tiles, scale=model.scale))


def _likeliest(row: LabelRow, names: Sequence[str]) -> str:
    """The likeliest classes with their probabilities, such as `nevus 51%, melanoma 47%`."""
    pairs = sorted(zip(row.probabilities, names, strict=True), key=lambda pair: -pair[0])
    return ", ".join(f"{name} {probability:.0%}" for probability, name in pairs[:_NAMED])
