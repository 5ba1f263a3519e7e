"""Pictures of a case: the overlay and what the review page shows; all files of a case.

Of an image with a label, the page shows the image alone. One that is no larger than a thumbnail is
its own thumbnail, and is kept as it is: the page enlarges it.
"""

import io
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from segconf.files import is_regular, make_folder, write_bytes, write_text
from segconf.images.encoding import write_png
from segconf.images.types import Image
from segconf.overlays.contours import Regions
from segconf.overlays.layers import Scale, draw_bands, draw_contour
from segconf.overlays.overlay import (
    Style,
    as_fraction,
    overlay,
    sampled,
    shown_image,
)
from segconf.overlays.view import View
from segconf.results.label_rows import LabelRow
from segconf.results.maps import Maps, prepare_folders, with_slices, write_maps, write_row
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import NOTE, OUT_OF_DISTRIBUTION, CaseRow
from segconf.results.structures import write_structures
from segconf.review.page_maps import fitting_size, page_map

PAGE_SIDE = 1400
"""Longest side of the image in the review page."""


THUMBNAIL_SIDE = 168


_JPEG_QUALITY = 88


Pixels = NDArray[np.uint8]


Levels = NDArray[np.uint16]


def case_scale(scale: Scale, row: CaseRow) -> Scale:
    """The scale of a case: nothing is promised for an out-of-distribution image."""
    words = {flag.removeprefix(NOTE) for flag in row.flags}  # another reason may come first
    return scale.without_contours() if OUT_OF_DISTRIBUTION in words else scale


def write_page_files(
    folder: PredictionFolder,
    case: str,
    image: Pixels,
    maps: tuple[Pixels, Levels],
    scale: Scale,
    regions: Regions | None = None,
) -> Pixels:
    """Write what the review page loads for a case: image and confidence map.

    Args:
        folder: of the prediction.
        case: its name.
        image: (C, H, W).
        maps: mask and confidence levels, each (H, W).
        scale: with the contours.
        regions: (H, W) pixels inside of the contours, where they do not follow from the maps.

    Returns:
        The image (h, w, 3) as the page shows it.
    """
    size = View(max_side=PAGE_SIDE).size(*maps[0].shape)
    shown = shown_image(image, size)  # (h, w, 3)
    write_jpeg(folder.shown_image(case), shown)
    write_text(folder.page_map(case), page_map(case, maps, scale, regions))
    return shown


def write_thumbnail(
    path: Path, shown: Pixels, maps: tuple[Pixels, Levels], scale: Scale, aspect: float = 1.0
) -> None:
    """Write a small overlay for the queue of the review page.

    Args:
        path: of the file.
        shown: (h, w, 3) the image.
        maps: mask and confidence levels, each (H, W).
        scale: levels that are shaded.
        aspect: height of a pixel divided by its width.
    """
    mask, levels = maps
    height, width = mask.shape
    small = fitting_size((height * max(1, aspect), width * max(1, 1 / aspect)), THUMBNAIL_SIDE)
    shrunk = cv2.resize(shown, small[::-1], interpolation=cv2.INTER_AREA)
    thumbnail = np.asarray(shrunk, np.uint8).reshape(*small, 3)
    shown_mask, shown_levels = sampled(mask, small), sampled(levels, small)
    draw_bands(thumbnail, as_fraction(shown_levels), scale)
    draw_contour(thumbnail, shown_mask)
    write_jpeg(path, thumbnail)


def write_jpeg(path: Path, pixels: Pixels) -> None:
    """Write colours (h, w, 3); complete or not at all."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "jpeg", quality=_JPEG_QUALITY)
    write_bytes(path, buffer.getvalue())


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
    view = View.of(image)
    picture = overlay(pixels, mask, levels, style=style, scale=shown, regions=regions, view=view)
    write_png(folder.overlay(row.case), picture)
    large = write_page_files(folder, row.case, pixels, (mask, levels), shown, regions)
    write_thumbnail(folder.thumbnail(row.case), large, (mask, levels), shown, view.aspect)
    write_structures(folder, row, maps)
    write_row(folder, row)


def is_small(row: LabelRow) -> bool:
    """Whether an image is its own thumbnail."""
    return max(row.height, row.width) <= THUMBNAIL_SIDE


def _label_pictures(folder: PredictionFolder, row: LabelRow) -> dict[Path, int]:
    """Pictures of an image with a label, and the longest side of each."""
    if is_small(row):
        return {folder.shown_image(row.case, ".png"): THUMBNAIL_SIDE}
    return {folder.shown_image(row.case): PAGE_SIDE, folder.thumbnail(row.case): THUMBNAIL_SIDE}


def write_label_pictures(folder: PredictionFolder, row: LabelRow, image: Pixels) -> None:
    """Write what the review page shows of an image (C, H, W) with a label."""
    for path, side in _label_pictures(folder, row).items():
        shown = shown_image(image, fitting_size(image.shape[1:], side))
        make_folder(path.parent)
        (write_png if is_small(row) else write_jpeg)(path, shown)


def has_label_pictures(folder: PredictionFolder, row: LabelRow) -> bool:
    """Whether the review page has what it shows of an image with a label."""
    return all(is_regular(path) for path in _label_pictures(folder, row))
