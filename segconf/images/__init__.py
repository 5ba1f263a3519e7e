"""Pixels and geometry to and from disk: JPEG, PNG, BMP, TIFF and NIfTI."""

from segconf.images.masks import read_mask
from segconf.images.reading import read_header, read_image
from segconf.images.resizing import resize_mask, resize_pixels, slices_on_grid
from segconf.images.types import (
    DEFAULT_MAX_PIXELS,
    IGNORE,
    IMAGE_SUFFIXES,
    Header,
    Image,
    case_name,
    image_suffix,
)
from segconf.images.writing import (
    confidence_bits,
    read_confidence,
    read_probability_volume,
    write_confidence,
    write_mask,
)

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "IGNORE",
    "IMAGE_SUFFIXES",
    "Header",
    "Image",
    "case_name",
    "confidence_bits",
    "image_suffix",
    "read_confidence",
    "read_header",
    "read_image",
    "read_mask",
    "read_probability_volume",
    "resize_mask",
    "resize_pixels",
    "slices_on_grid",
    "write_confidence",
    "write_mask",
]
