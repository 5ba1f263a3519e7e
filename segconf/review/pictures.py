"""Pictures of a case: the overlay and what the review page shows; all files of a case."""

import base64
import io
import json
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from segconf.files import write_bytes, write_text
from segconf.images.encoding import png_bytes, write_png
from segconf.images.types import Image
from segconf.overlays.layers import Scale, draw_bands, draw_contour
from segconf.overlays.overlay import (
    Style,
    as_fraction,
    overlay,
    sampled,
    shown_image,
)
from segconf.overlays.view import View
from segconf.results.maps import Maps, prepare_folders, with_slices, write_maps, write_row
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import OUT_OF_DISTRIBUTION, CaseRow
from segconf.results.structures import write_structures

PAGE_SIDE = 1400
"""Longest side of the image in the review page."""


MAP_SIDE = 420
"""Longest side of the confidence map in the review page."""


PAGE_LOG_ODDS = 10.0
"""Above those of a guess, from which on the page tells no confidences apart: 99.995%."""


THUMBNAIL_SIDE = 168


_JPEG_QUALITY = 88


Pixels = NDArray[np.uint8]


Levels = NDArray[np.uint16]


def case_scale(scale: Scale, row: CaseRow) -> Scale:
    """The scale of a case: nothing is promised for an out-of-distribution image."""
    return scale.without_contours() if OUT_OF_DISTRIBUTION in row.flags else scale


def write_page_files(
    folder: PredictionFolder, case: str, image: Pixels, maps: tuple[Pixels, Levels], scale: Scale
) -> None:
    """Write what the review page loads for a case: image, thumbnail, confidence map.

    Args:
        folder: of the prediction.
        case: its name.
        image: (C, H, W).
        maps: mask and confidence levels, each (H, W).
        scale: levels of the thumbnail.
    """
    mask, levels = maps
    size = View(max_side=PAGE_SIDE).size(*mask.shape)
    shown = shown_image(image, size)  # (h, w, 3)
    write_jpeg(folder.shown_image(case), shown)
    small = _fit(mask.shape, THUMBNAIL_SIDE)
    shrunk = cv2.resize(shown, small[::-1], interpolation=cv2.INTER_AREA)
    thumbnail = np.asarray(shrunk, np.uint8).reshape(*small, 3)
    shown_mask, shown_levels = sampled(mask, small), sampled(levels, small)
    draw_bands(thumbnail, as_fraction(shown_levels), scale)
    draw_contour(thumbnail, shown_mask)
    write_jpeg(folder.thumbnail(case), thumbnail)
    write_text(folder.page_map(case), page_map(case, mask, levels, scale))


def page_map(case: str, mask: Pixels, levels: Levels, scale: Scale) -> str:
    """A script that hands the page the confidence and the mask of a case.

    A page opened from a file may not read the pixels of pictures beside it, but it may run scripts
    beside it: the map travels as a PNG inside of one. Red is the confidence as `page_level`; green
    is the class.
    """
    size = _fit(mask.shape, MAP_SIDE)
    pixels = np.zeros((*size, 3), np.uint8)
    pixels[..., 0] = page_level(as_fraction(sampled(levels, size)), scale.lowest)
    pixels[..., 1] = sampled(mask, size)
    png = base64.b64encode(png_bytes(pixels)).decode("ascii")
    return f"segconfMap({script_safe(case)}, {script_safe(png)});\n"


def page_level(confidence: NDArray[np.floating], lowest: float) -> Pixels:
    """The 256 levels of the page: log-odds of the confidence, 0 at 1/K and 255 at `PAGE_LOG_ODDS`.

    Confidence itself would not do: pixels that are wrong 1 time in 1000 and 1 time in 10,000 would
    share a level.
    """
    inside: NDArray[np.float64] = np.clip(confidence.astype(np.float64), lowest, 1 - 1e-9)
    log_odds = np.log(inside / (1 - inside)) - np.log(lowest / (1 - lowest))
    fraction = np.clip(log_odds / PAGE_LOG_ODDS, 0, 1)
    # A confidence that was computed from a level is that level again, in spite of rounding.
    return np.asarray(np.floor(fraction * 255 + 1e-3), np.uint8)


def page_confidence(levels: NDArray[np.int64], lowest: float) -> NDArray[np.float32]:
    """Lowest confidence of each of the levels of the page."""
    log_odds = levels / 255 * PAGE_LOG_ODDS + np.log(lowest / (1 - lowest))
    return np.asarray(1 / (1 + np.exp(-log_odds)), np.float32)


def script_safe(value: object) -> str:
    """JSON that can stand in a script of an HTML page whatever it holds."""
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write_jpeg(path: Path, pixels: Pixels) -> None:
    """Write colours (h, w, 3); complete or not at all."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "jpeg", quality=_JPEG_QUALITY)
    write_bytes(path, buffer.getvalue())


def _fit(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Height and width with the longest side at most `side`."""
    factor = min(1.0, side / max(shape))
    return max(1, round(shape[0] * factor)), max(1, round(shape[1] * factor))


def write_case(
    folder: PredictionFolder, row: CaseRow, image: Image, maps: Maps, *, scale: Scale, style: Style
) -> None:
    """Write the files of a case; of a volume, pictures show the slice that its row names."""
    prepare_folders(folder, row)
    write_maps(folder, row, image, maps)
    pixels = with_slices(image.pixels)[:, row.slice]  # (C, H, W)
    mask, levels = maps.mask[row.slice], maps.levels[row.slice]
    shown = case_scale(scale, row)
    regions = maps.regions[row.slice] if maps.regions is not None and shown.contours else None
    picture = overlay(
        pixels, mask, levels, style=style, scale=shown, regions=regions, view=View.of(image)
    )
    write_png(folder.overlay(row.case), picture)
    write_page_files(folder, row.case, pixels, (mask, levels), scale)
    write_structures(folder, row, maps)
    write_row(folder, row)
