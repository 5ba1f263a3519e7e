"""DICOM pictures, read with pydicom: photographs, radiographs and single slices.

Colours are converted to RGB. Grey values are brought to the units of their modality, and those of
the window become 0..255: `data.intensity_window`, else the window of the header. Pixels of 8 bits
without a window are taken as they are, others by their percentiles 0.5 and 99.5.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.images.dicom_files import PICTURE_SUFFIX, files_of, open_dicom
from segconf.images.dicom_pixels import (
    changes_values,
    check_grey,
    check_image,
    colours,
    decoded,
    header_window,
    intensities,
    is_colour,
)
from segconf.images.dicom_segmentation import is_segmentation, open_segmentation
from segconf.images.image_format import ImageFormat, register
from segconf.images.resizing import resize_pixels
from segconf.images.types import (
    ByteArray,
    Header,
    Image,
    ReadOptions,
    Window,
    check_ceiling,
    resized_spacing,
)
from segconf.images.volumes import percentile_window, to_bytes, with_channels

_EIGHT = 8


@register
class Dicom(ImageFormat):
    """One picture per file; a segmentation object is a mask."""

    name = "dicom"
    suffixes = frozenset({PICTURE_SUFFIX, ".dicom"})
    map_suffix = ".png"

    def files(self, path: Path) -> tuple[Path, ...]:
        """Files that the path stands for."""
        return files_of(path)

    def read_header(self, path: Path) -> Header:
        """Size and channels, without decoding pixels."""
        (file,) = files_of(path)[:1]
        with open_dicom(file, shown=path) as dataset:
            if is_segmentation(dataset):
                return open_segmentation(dataset, path).header()
            _check_picture(dataset, path)
            size = int(dataset.Rows), int(dataset.Columns)
            channels = 3 if is_colour(dataset) else 1
            return Header(size, slices=1, channels=channels, pixel_spacing=_spacing(dataset))

    def read_image(self, path: Path, options: ReadOptions) -> Image:
        """Pixels (C, H, W); a spacing where the file has one."""
        (file,) = files_of(path)[:1]
        with open_dicom(file, shown=path) as dataset:
            _check_picture(dataset, path)
            size = int(dataset.Rows), int(dataset.Columns)
            check_ceiling(path, size, 1, options.max_pixels)
            if options.slice_index not in (None, 0):
                raise DataError(f"{path}: slice {options.slice_index} was asked for, it has one.")
            if is_colour(dataset):
                pixels = np.moveaxis(colours(dataset, path), -1, 0)[:, None]  # (3, 1, H, W)
            else:
                check_grey(dataset, path)
                pixels = _grey(dataset, path, options.window)
            spacing = _spacing(dataset)
            colour = is_colour(dataset)
        if pixels.shape[2:] != size:
            raise DataError(f"{path}: the picture has another size than its header says.")
        pixels = with_channels(path, pixels, options.channels, is_colour=colour)[:, 0]
        if options.size is not None:
            pixels = resize_pixels(np.ascontiguousarray(pixels), options.size)
            spacing = spacing and resized_spacing(spacing, size, options.size)
        return Image(np.ascontiguousarray(pixels), path, spacing=spacing)

    def read_labels(self, path: Path, slice_index: int | None) -> NDArray[Any]:
        """Segment numbers of a segmentation object, or the stored values of a grey picture."""
        (file,) = files_of(path)[:1]
        with open_dicom(file, shown=path) as dataset:
            if is_segmentation(dataset):
                return open_segmentation(dataset, path).labels(dataset, slice_index)
            _check_picture(dataset, path)
            if is_colour(dataset):
                raise DataError(
                    f"{path}: the mask is in colour. Save one channel, or a SEG object."
                )
            return decoded(dataset, path)


def _check_picture(dataset: Any, path: Path) -> None:
    check_image(dataset, path)
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames > 1:
        raise DataError(
            f"{path}: holds {frames} frames. Give the folder that it lies in, so that it is read "
            "as a volume."
        )


def _grey(dataset: Any, path: Path, window: Window | None) -> ByteArray:
    """Grey values of the window as 0..255, (1, 1, H, W)."""
    values = decoded(dataset, path)
    chosen = window or header_window(dataset, path)
    plain = int(dataset.BitsStored) == _EIGHT and not int(dataset.get("PixelRepresentation") or 0)
    if chosen is None and plain and not changes_values(dataset):
        pixels = values.astype(np.uint8)[None, None]
    else:
        levels = intensities(dataset, values)
        pixels = to_bytes(levels[None, None], [chosen or percentile_window(levels)])
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        pixels = 255 - pixels
    return pixels


def _spacing(dataset: Any) -> tuple[float, float] | None:
    """Millimetres between rows and between columns in the patient; None where unknown."""
    try:
        rows, columns = (float(value) for value in dataset.get("PixelSpacing") or ())
    except (TypeError, ValueError):
        return None
    possible = np.isfinite([rows, columns]).all() and min(rows, columns) > 0
    return (rows, columns) if possible else None
