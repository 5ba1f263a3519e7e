"""The legend under an overlay."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
from numpy.typing import NDArray

from segconf.overlays.contours import draw_sample
from segconf.overlays.layers import Scale, Step, draw_bands, draw_line

BACKGROUND = (22, 24, 28)
_TEXT = (236, 238, 241)
_QUIET = (176, 181, 189)
_SWATCH_GREY = 140

# A network may have no confidence at all that is wrong so often; the legend has a sample anyway.
_LOW, _MIDDLE = 0.0, 0.5
_SAMPLE_SCALE = Scale((Step(2, 0.25), Step(4, 0.75)), 2, 4)

Swatch = Literal["contour", "low", "middle", "heat", "outer", "inner"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A sample and the words beside it."""

    swatch: Swatch | None
    text: str


def legend(
    width: int, entries: list[Entry], *, scale: Scale, small_print: list[str]
) -> NDArray[np.uint8]:
    """Entries from left to right, wrapped to the width; the small print below. (h, width, 3)."""
    size = max(13, min(26, width // 62))
    font, small = (PIL.ImageFont.load_default(points) for points in (size, max(12, size - 3)))
    line = round(1.75 * size)
    places, bottom = _flow(entries, width, size, line, font)
    lines = [part for text in small_print for part in wrapped(text, width - 2 * size, small)]
    height = bottom + line + round(1.4 * size * len(lines)) + size // 2
    strip = PIL.Image.new("RGB", (width, height), BACKGROUND)
    draw = PIL.ImageDraw.Draw(strip)
    for entry, (x, y) in zip(entries, places, strict=True):
        indent = 0
        if entry.swatch is not None:
            sample = _sample(entry.swatch, scale, _swatch_width(entry, size), size)
            strip.paste(PIL.Image.fromarray(sample), (x, y + (line - size) // 2))
            indent = _swatch_width(entry, size) + size // 2
        draw.text((x + indent, y + line // 2), entry.text, _TEXT, font, anchor="lm")
    for number, text in enumerate(lines):
        y = bottom + line + round(1.4 * size * number)
        draw.text((size, y), text, _QUIET, small, anchor="lt")
    return np.asarray(strip)


def _flow(
    entries: list[Entry],
    width: int,
    size: int,
    line: int,
    font: PIL.ImageFont.FreeTypeFont | PIL.ImageFont.ImageFont,
) -> tuple[list[tuple[int, int]], int]:
    """Where each entry begins, and where the last line of them begins."""
    places: list[tuple[int, int]] = []
    x, y = size, size // 2
    for entry in entries:
        needed = round(font.getlength(entry.text)) + _swatch_width(entry, size) + size // 2
        if x > size and x + needed > width - size:
            x, y = size, y + line
        places.append((x, y))
        x += needed + round(1.5 * size)
    return places, y


def _swatch_width(entry: Entry, size: int) -> int:
    widths = {None: 0, "heat": 10 * size, "outer": 3 * size, "inner": 3 * size}
    return widths.get(entry.swatch, round(1.8 * size))


def _sample(kind: Swatch, scale: Scale, width: int, height: int) -> NDArray[np.uint8]:
    """A piece of what the entry stands for, drawn by the functions that draw the overlay."""
    picture = np.full((height, width, 3), _SWATCH_GREY, np.uint8)
    match kind:
        case "heat":
            ramp = np.linspace(scale.lowest, 1, width, dtype=np.float32)
            picture = scale.colours(np.repeat(ramp[None], height, axis=0))
        case "contour":
            draw_line(picture, width=max(1, height // 9))
        case "outer" | "inner":
            draw_sample(picture, kind, width=max(1, height // 9))
        case "low" | "middle":
            band = _LOW if kind == "low" else _MIDDLE
            draw_bands(picture, np.full((height, width), band, np.float32), _SAMPLE_SCALE)
    return picture


def wrapped(
    text: str, width: int, font: PIL.ImageFont.FreeTypeFont | PIL.ImageFont.ImageFont
) -> list[str]:
    """Break between words where a line is full."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and font.getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
