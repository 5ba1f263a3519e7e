"""The overlay: image and layers at display size, and the legend outside of the image."""

from collections.abc import Sequence
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from segconf.conventions import ASSUMPTIONS, FULL_SCALE
from segconf.overlays.contours import Regions, draw_promises, regions_of_maps, shown_contours
from segconf.overlays.layers import Contour, Pixels, Scale, draw_bands, draw_contour, draw_heat
from segconf.overlays.legend import BACKGROUND, Entry, legend
from segconf.overlays.view import View

Style = Literal["contour", "heatmap", "side-by-side"]


NOTICE = "research use, not a medical device"


_MIN_STRIP = 640


_RGB = 3
_PLAIN = View()
_BINARY = 2


def overlay(  # noqa: PLR0913 - three maps, what is drawn of them, and how large
    image: NDArray[np.uint8],
    mask: NDArray[np.uint8],
    confidence: NDArray[Any],
    *,
    style: Style,
    scale: Scale,
    regions: Regions | None = None,
    view: View = _PLAIN,
) -> Pixels:
    """Picture (h, w, 3) of an image (C, H, W), its predicted mask (H, W) and the confidence (H, W).

    `contour`: only pixels that are wrong too often, tinted in two bands. `heatmap`: the whole scale
    1/K..1 over the image, never stretched to the image's own range. `side-by-side`: the contour
    alone, beside the confidence alone.

    Args:
        image: uint8; the first channel is shown where there are not three.
        mask: class index.
        confidence: 0..1, or the 16-bit levels of a saved map.
        style: what is drawn.
        scale: which pixels are shaded.
        regions: (H, W) pixels inside of the contours that the scale shows, as `fill_regions` gives
            them. With two classes they follow from the maps; with more, no contour is drawn without
            them.
        view: shape of the pixels, sides of the patient, and the longest side of the image.
    """
    if image.shape[1:] != mask.shape or mask.shape != confidence.shape:
        raise ValueError(f"shapes differ: {image.shape[1:]}, {mask.shape}, {confidence.shape}")
    size = view.size(mask.shape[0], mask.shape[1])
    picture = shown_image(image, size)
    shown_mask = sampled(mask, size)
    shown_confidence = as_fraction(sampled(confidence, size))
    match style:
        case "contour":
            draw_bands(picture, shown_confidence, scale)
        case "heatmap":
            draw_heat(picture, shown_confidence, scale)
        case "side-by-side":
            heat = scale.colours(shown_confidence)
            draw_contour(heat, shown_mask)
            view.draw_marks(heat)
    contours = shown_contours(scale.contours)
    if regions is not None:
        draw_promises(picture, sampled(regions, size), contours)
    elif scale.classes == _BINARY:
        found = regions_of_maps(shown_mask, shown_confidence, contours)
        draw_promises(picture, found, contours)
    else:
        contours = ()
    draw_contour(picture, shown_mask)
    view.draw_marks(picture)
    if style == "side-by-side":
        gap = np.full((size[0], max(4, size[1] // 80), 3), BACKGROUND, np.uint8)
        picture = np.concatenate([picture, gap, heat], axis=1)
    return _with_legend(picture, style, scale, contours)


def _with_legend(
    picture: Pixels, style: Style, scale: Scale, contours: Sequence[Contour]
) -> Pixels:
    width = max(_MIN_STRIP, picture.shape[1])
    side = width - picture.shape[1]
    padding = ((0, 0), (side // 2, side - side // 2), (0, 0))
    framed = np.stack(
        [
            np.pad(picture[..., band], padding[:2], constant_values=BACKGROUND[band])
            for band in range(_RGB)
        ],
        axis=-1,
    )
    entries = [Entry("contour", "predicted border")]
    if style == "contour":
        low, middle = scale.words()
        entries += [Entry("low", low), Entry("middle", middle)]
    else:
        lowest = f"confidence {100 * scale.lowest:.3g}% (a guess)"
        entries += [Entry(None, lowest), Entry("heat", "100% (certain)")]
    entries += [Entry(kind, words) for kind, words in dict.fromkeys(map(_promise, contours))]
    small_print = [ASSUMPTIONS] if contours else []
    source = scale.source() if style == "contour" else "High confidence is good."
    small_print.append(f"{source} For {NOTICE}.")
    strip = legend(width, entries, scale=scale, small_print=small_print)
    return np.concatenate([framed, strip])


def _promise(contour: Contour) -> tuple[Literal["outer", "inner"], str]:
    return contour.kind, contour.words()


def shown_image(image: NDArray[np.uint8], size: tuple[int, int]) -> Pixels:
    """An image (C, H, W) as colours (h, w, 3): averaged when it shrinks, repeated when it grows."""
    planes = image if len(image) == _RGB else image[:1].repeat(_RGB, axis=0)
    if size[0] >= image.shape[1] and size[1] >= image.shape[2]:
        return np.ascontiguousarray(sampled(planes, size).transpose(1, 2, 0))
    shrunk = [cv2.resize(plane, size[::-1], interpolation=cv2.INTER_AREA) for plane in planes]
    return np.stack(shrunk, axis=-1).reshape(*size, _RGB)


def sampled(values: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """Nearest pixel centres on the last two axes."""
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new)
        for old, new in zip(values.shape[-2:], size, strict=True)
    )
    return values[..., rows, :][..., columns]


def as_fraction(confidence: NDArray[Any]) -> NDArray[np.float32]:
    """Confidence 0..1, from that or from 16-bit levels."""
    if confidence.dtype == np.uint16:
        return confidence.astype(np.float32) / np.float32(FULL_SCALE)
    return confidence.astype(np.float32)
