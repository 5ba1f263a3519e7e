"""What the review page knows of a case: confidence, the mask at native size, and contours."""

import base64
import json

import numpy as np
from numpy.typing import NDArray

from segconf.images.encoding import png_bytes
from segconf.images.run_length import encode_runs
from segconf.overlays.contours import Regions, regions_of_maps, shown_contours
from segconf.overlays.layers import Scale
from segconf.overlays.overlay import as_fraction, sampled

MAP_SIDE = 420
"""Longest side of the confidence map in the review page."""
PAGE_LOG_ODDS = 10.0
"""Above those of a guess, from which on the page tells no confidences apart: 99.995%."""
_BINARY = 2

Pixels = NDArray[np.uint8]
Levels = NDArray[np.uint16]


def page_map(
    case: str, maps: tuple[Pixels, Levels], scale: Scale, regions: Regions | None = None
) -> str:
    """A script that hands the page what it knows of a case.

    A page opened from a file may not read the pixels of pictures beside it, but it may run scripts
    beside it. The confidence travels as a small grey PNG of `page_level`. Mask and contours are
    run-length coded at native size, so that corrections are exact.

    Args:
        case: its name.
        maps: mask and confidence levels, each (H, W).
        scale: number of classes and the contours.
        regions: (H, W) pixels inside of the contours; with two classes they follow from the maps.
    """
    mask, levels = maps
    size = fitting_size(mask.shape, MAP_SIDE)
    pixels = page_level(as_fraction(sampled(levels, size)), scale.lowest)
    content = {
        "confidence": base64.b64encode(png_bytes(pixels)).decode("ascii"),
        "mask": {"size": list(mask.shape), "runs": encode_runs(mask)},
        "contours": _contours(mask, levels, scale, regions),
    }
    return f"segconfMap({script_safe(case)}, {script_safe(content)});\n"


def _contours(
    mask: Pixels, levels: Levels, scale: Scale, regions: Regions | None
) -> list[dict[str, object]]:
    contours = shown_contours(scale.contours)
    if regions is None:
        if scale.classes != _BINARY:
            return []
        regions = regions_of_maps(mask, as_fraction(levels), contours)
    inside = ((regions >> regions.dtype.type(bit)) & 1 for bit in range(len(contours)))
    return [
        {
            "kind": contour.kind,
            "class": contour.class_index,
            "alpha": contour.alpha,
            "runs": encode_runs(one.astype(np.uint8)),
        }
        for contour, one in zip(contours, inside, strict=True)
    ]


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


def fitting_size(shape: tuple[float, ...], side: int) -> tuple[int, int]:
    """Height and width with the longest side at most `side`."""
    factor = min(1.0, side / max(shape))
    return max(1, round(shape[0] * factor)), max(1, round(shape[1] * factor))
