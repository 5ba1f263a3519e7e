"""Images and maps to and from disk, whatever their format."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.files import file_hash
from segconf.images.encoding import complete_file
from segconf.images.image_format import ImageFormat, format_of
from segconf.images.types import (
    DEFAULT_MAX_PIXELS,
    Header,
    Image,
    ReadOptions,
    Size,
    Window,
    describe_os_error,
    reason,
)

_LARGEST_CLASS = 255


def read_header(path: Path | str) -> Header:
    """Size (after EXIF rotation), slices and channels, without decoding pixels.

    Raises:
        DataError: the file is missing, empty, broken at its start, not an image, or holds several
            pictures.
    """
    path = Path(path)
    return format_of(path).read_header(path)


def image_hash(path: Path | str) -> str:
    """SHA-256 of the file of an image; of the hashes of its files, in order, where it has several.

    Raises:
        DataError: a file cannot be read.
    """
    path = Path(path)
    try:
        hashes = sorted(file_hash(file) for file in format_of(path).files(path))
    except OSError as error:
        raise describe_os_error(path, error) or DataError(f"{path}: {reason(error)}") from error
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def read_image(
    path: Path | str,
    *,
    channels: int = 3,
    size: Size | None = None,
    slice_index: int | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    window: Window | None = None,
) -> Image:
    """Pixels as 8 bits per channel, upright, with their geometry; safe to call from many threads.

    Pictures: the EXIF orientation is applied. Alpha and colour profiles are dropped: the stored
    colours are the pixels. Grey asked as three channels is repeated, colour asked as one channel
    becomes ITU-R 601 luma. Deep grey levels are mapped from the declared range (2^bits - 1 = white)
    and never stretched to the image's own; floating point must lie in 0..1; signed and 32-bit
    integers are refused, as are files with several pictures.

    With `size`, images are resized bilinearly with antialiasing, and JPEGs are decoded at 1/2, 1/4
    or 1/8 as long as that leaves a quarter more than the target. On 15 dermoscopy images of
    1024 x 768 to 4288 x 2848, resized to 256 x 192, that is 3 to 5 times as fast as decoding them
    fully, and 0.44 grey levels away on average (0.76 in the worst image; `benchmarks/data.py`).

    NIfTI: volumes are brought to one orientation (`segconf.images.orientation`); a fourth axis
    holds channels. Intensities are mapped from `window` to 0..255; by default from the 0.5 and 99.5
    percentiles of the whole volume, for each channel. nan becomes black, a constant volume zeros.

    Args:
        path: the suffix decides the format; among pictures the content decides.
        channels: 1 or 3; any other number must be that of the file.
        size: height and width to resize to; the grid of the file when not given.
        slice_index: slice of a volume; the whole volume when not given.
        max_pixels: ceiling on the pixels (times slices) of the file.
        window: intensities of a volume that become black and white.

    Returns:
        (C, H, W), or (C, D, H, W) for a volume of several slices read whole.

    Raises:
        DataError: the file cannot be read, or is not what is asked for.
    """
    path = Path(path)
    if window is not None and not window[0] < window[1]:
        raise ValueError(f"window must be (low, high) with low < high, not {window}")
    options = ReadOptions(channels, size, slice_index, max_pixels, window)
    return format_of(path).read_image(path, options)


def read_confidence(path: Path | str) -> NDArray[np.float32]:
    """Confidence 0..1 from a grey PNG (16-bit, or 8-bit: white = 1) or a NIfTI file.

    Returns:
        (H, W), or (D, H, W) for a volume.

    Raises:
        DataError: the file cannot be read, is coloured, or its values leave 0..1.
    """
    path = Path(path)
    return format_of(path).read_confidence(path)


def confidence_bits(path: Path | str) -> int:
    """Bits per pixel of a confidence map; 0 where it holds floating point."""
    path = Path(path)
    return format_of(path).confidence_bits(path)


def read_probabilities(path: Path | str) -> NDArray[np.float32]:
    """Values of a NIfTI file, channels first: (C, H, W), or (C, D, H, W) for several slices."""
    path = Path(path)
    return format_of(path).read_probabilities(path)


def write_mask(path: Path | str, mask: NDArray[Any], *, like: Image | None = None) -> None:
    """Write class indices (H, W) as 8-bit grey PNG, or (H, W) / (D, H, W) as NIfTI.

    Args:
        path: ends in .png, .nii or .nii.gz.
        mask: integers 0..255.
        like: image whose grid the mask has; its affine and header are written to NIfTI files.

    Raises:
        FileError: the file cannot be written.
    """
    if mask.dtype != np.bool_ and not np.issubdtype(mask.dtype, np.integer):
        raise ValueError(f"a mask holds integers, not {mask.dtype}")
    if mask.dtype != np.uint8:
        if mask.size and not 0 <= mask.min() <= mask.max() <= _LARGEST_CLASS:
            raise ValueError(f"a mask holds 0..255, not {mask.min()}..{mask.max()}")
        mask = mask.astype(np.uint8)
    path = Path(path)
    image_format = _writer(path, mask, like)
    with complete_file(path) as temporary:
        image_format.write_labels(temporary, mask, like)


def write_confidence(
    path: Path | str, confidence: NDArray[Any], *, like: Image | None = None
) -> None:
    """Write confidence, or the probability of one class, as 16-bit grey PNG or as NIfTI.

    NIfTI has no float16: levels are stored as uint16 with the scale factor 1/65535, so that readers
    get 0..1, and floats as float32.

    Args:
        path: ends in .png, .nii or .nii.gz.
        confidence: (H, W), or (D, H, W) for NIfTI; floats 0..1, or uint16 levels 0..65535.
        like: image whose grid the map has; its affine and header are written to NIfTI files.

    Raises:
        FileError: the file cannot be written.
    """
    if confidence.dtype != np.uint16 and not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("confidence must lie between 0 and 1")
    path = Path(path)
    image_format = _writer(path, confidence, like)
    with complete_file(path) as temporary:
        image_format.write_confidence(temporary, confidence, like)


def _writer(path: Path, values: NDArray[Any], like: Image | None) -> ImageFormat:
    """The format that writes a map, whose grid must be that of its image."""
    if like is not None and values.shape != like.spatial_shape:
        raise ValueError(f"{path}: shape {values.shape}, its image has {like.spatial_shape}")
    return format_of(path)
