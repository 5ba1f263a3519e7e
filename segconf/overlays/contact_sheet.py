"""Contact sheet: small pictures or overlays in rows, each with two lines of text."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
from numpy.typing import NDArray

from segconf.overlays.layers import Pixels, Scale, draw_bands, draw_contour
from segconf.overlays.legend import BACKGROUND, Entry, legend
from segconf.overlays.overlay import NOTICE, sampled, shown_image

_SIDE = 240
_GAP = 12
_TEXT_SIZE = 14
_LINE = 20
_COLUMNS = 6
_TITLE, _QUIET = (236, 238, 241), (176, 181, 189)


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """An image (C, H, W), its predicted mask and confidence (H, W), and what is written below.

    Where a label is predicted there is neither a mask nor a map of confidence.
    """

    image: NDArray[np.uint8]
    mask: NDArray[np.uint8] | None
    confidence: NDArray[np.float32] | None
    title: str
    words: str


def contact_sheet(tiles: Sequence[Tile], *, scale: Scale) -> Pixels:
    """Tiles in rows of up to six, and the legend of the overlays, if any, below. (h, w, 3)."""
    if not tiles:
        raise ValueError("a contact sheet needs at least one tile")
    columns = min(_COLUMNS, max(3, len(tiles)))
    pictures = [_picture(tile, scale) for tile in tiles]
    height = max(len(picture) for picture in pictures) + 2 * _LINE + _GAP
    rows = -(-len(tiles) // columns)
    size = (columns * (_SIDE + _GAP) + _GAP, rows * height + _GAP)
    sheet = PIL.Image.new("RGB", size, BACKGROUND)
    draw = PIL.ImageDraw.Draw(sheet)
    font = PIL.ImageFont.load_default(_TEXT_SIZE)
    for number, (tile, picture) in enumerate(zip(tiles, pictures, strict=True)):
        left = _GAP + (number % columns) * (_SIDE + _GAP)
        top = _GAP + (number // columns) * height
        sheet.paste(PIL.Image.fromarray(picture), (left, top))
        below = top + height - 2 * _LINE - _GAP
        for text, colour, y in ((tile.title, _TITLE, below), (tile.words, _QUIET, below + _LINE)):
            draw.text((left, y + _LINE // 2), _fitting(text, font), colour, font, anchor="lm")
    low, middle = scale.words()
    entries = [Entry("contour", "predicted border"), Entry("low", low), Entry("middle", middle)]
    if all(tile.mask is None for tile in tiles):
        entries = []
    small_print = [f"High confidence is good. For {NOTICE}."]
    strip = legend(size[0], entries, scale=scale, small_print=small_print)
    return np.concatenate([np.asarray(sheet), strip])


def _picture(tile: Tile, scale: Scale) -> Pixels:
    """The overlay with its longest side filling the tile."""
    height, width = tile.image.shape[1:] if tile.mask is None else tile.mask.shape
    factor = _SIDE / max(height, width)
    size = max(1, round(height * factor)), max(1, round(width * factor))
    if factor > 1:
        whole = shown_image(tile.image, (height, width))
        grown = cv2.resize(whole, size[::-1], interpolation=cv2.INTER_LINEAR)
        picture = np.asarray(grown, np.uint8)
    else:
        picture = shown_image(tile.image, size)
    if tile.confidence is not None:
        draw_bands(picture, sampled(tile.confidence, size), scale)
    if tile.mask is not None:
        draw_contour(picture, sampled(tile.mask, size))
    return picture


def _fitting(text: str, font: PIL.ImageFont.FreeTypeFont | PIL.ImageFont.ImageFont) -> str:
    """The text, without its middle where it is too wide: ids differ at their ends."""
    if font.getlength(text) <= _SIDE:
        return text
    kept = len(text) - 1
    while kept > 2 and font.getlength(_shortened(text, kept)) > _SIDE:  # noqa: PLR2004
        kept -= 1
    return _shortened(text, kept)


def _shortened(text: str, kept: int) -> str:
    return f"{text[: kept - kept // 2]}...{text[len(text) - kept // 2 :]}"
