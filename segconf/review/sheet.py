"""A sheet about one case: contour, heat map, and its numbers."""

import math

import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont
from numpy.typing import NDArray

from segconf.overlays.contours import Regions
from segconf.overlays.layers import Scale
from segconf.overlays.legend import wrapped
from segconf.overlays.overlay import NOTICE, Style, overlay
from segconf.overlays.view import View
from segconf.results.rows import CaseRow

_PAGE = (1754, 1240)  # A4 landscape at 150 dots per inch
_MARGIN = 70
_GAP = 40
_PANEL_HEIGHT = 690
_INK, _QUIET = (24, 26, 30), (92, 98, 107)
_TITLE, _TEXT, _SMALL = 34, 22, 18

Pixels = NDArray[np.uint8]


def case_sheet(
    row: CaseRow,
    image: Pixels,
    maps: tuple[Pixels, NDArray[np.uint16]],
    scales: tuple[Scale, Scale],
    view: View,
    *,
    regions: Regions | None = None,
) -> PIL.Image.Image:
    """A page with the contour at the left, the heat map at the right and the row below.

    Args:
        row: of the case.
        image: (C, H, W).
        maps: mask and confidence levels, each (H, W).
        scales: of the overlays, and of the prediction, by which the row counts the shaded area.
        view: how the slice is shown.
        regions: inside of the contours that the overlays show; see `overlay`.
    """
    shown, predicted = scales
    page = PIL.Image.new("RGB", _PAGE, "white")
    draw = PIL.ImageDraw.Draw(page)
    title, text, small = (PIL.ImageFont.load_default(size) for size in (_TITLE, _TEXT, _SMALL))
    draw.text((_MARGIN, _MARGIN - 20), row.case, _INK, title)
    width = (_PAGE[0] - 2 * _MARGIN - _GAP) // 2
    styles: tuple[Style, ...] = ("contour", "heatmap")
    for number, style in enumerate(styles):
        picture = overlay(image, *maps, style=style, scale=shown, regions=regions, view=view)
        panel = PIL.Image.fromarray(picture)
        panel.thumbnail((width, _PANEL_HEIGHT), PIL.Image.Resampling.BICUBIC)
        left = _MARGIN + number * (width + _GAP) + (width - panel.width) // 2
        page.paste(panel, (left, _MARGIN + 50))
    top = _MARGIN + 50 + _PANEL_HEIGHT + 40
    for number, (name, value) in enumerate(_facts(row, predicted)):
        x = _MARGIN + (number % 3) * (_PAGE[0] - 2 * _MARGIN) // 3
        y = top + (number // 3) * 64
        draw.text((x, y), name, _QUIET, small)
        draw.text((x, y + 24), value, _INK, text)
    flags = "; ".join(row.flags) or "nothing stands out"
    lines = wrapped(f"Flags: {flags}", _PAGE[0] - 2 * _MARGIN, text)
    draw.text((_MARGIN, top + 2 * 64 + 20), "\n".join(lines), _INK, text)
    draw.text((_MARGIN, _PAGE[1] - _MARGIN), f"For {NOTICE}.", _QUIET, small)
    return page


def _facts(row: CaseRow, predicted: Scale) -> list[tuple[str, str]]:
    """Names and values of the numbers of a row."""
    shaded = (
        f"Area wrong more than 1 in {predicted.shaded_times}"
        if predicted.measured
        else f"Area below confidence {_percent(predicted.shaded)}"
    )
    return [
        ("Expected Dice", _number(row.expected_dice)),
        ("Confidence along the border", _percent(row.border_confidence)),
        ("Mean confidence", _percent(row.mean_confidence)),
        ("5% of the pixels are below", _percent(row.confidence_p05)),
        (shaded, _percent(row.shaded_fraction)),
        ("Foreground area", _percent(row.foreground_fraction)),
    ]


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.2f}"


def _percent(fraction: float) -> str:
    return "none" if math.isnan(fraction) else f"{100 * fraction:.3g}%"
