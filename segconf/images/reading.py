"""Images from disk, whatever their format."""

from pathlib import Path

from segconf.images.nifti import Window, read_volume, volume_header
from segconf.images.raster import picture_header, read_picture
from segconf.images.types import (
    DEFAULT_MAX_PIXELS,
    NIFTI_SUFFIXES,
    Header,
    Image,
    Size,
    supported_suffix,
)


def read_header(path: Path | str) -> Header:
    """Size (after EXIF rotation), slices and channels, without decoding pixels.

    Raises:
        DataError: the file is missing, empty, broken at its start, not an image, or holds several
            pictures.
    """
    path = Path(path)
    if supported_suffix(path) in NIFTI_SUFFIXES:
        return volume_header(path)
    return picture_header(path)


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

    NIfTI: columns, rows and slices are the first, second and third voxel axis, a fourth holds
    channels. Intensities are mapped from `window` to 0..255; by default from the 0.5 and 99.5
    percentiles of the whole volume, for each channel. nan becomes black, a constant volume zeros.

    Args:
        path: file with one of `IMAGE_SUFFIXES`; among pictures the content decides, not the suffix.
        channels: 1 or 3; any other number must be that of the file.
        size: height and width to resize to; the grid of the file when not given.
        slice_index: slice of a NIfTI volume; the whole volume when not given.
        max_pixels: ceiling on the pixels (times slices) of the file.
        window: NIfTI intensities that become black and white.

    Returns:
        (C, H, W), or (C, D, H, W) for a NIfTI volume of several slices read whole.

    Raises:
        DataError: the file cannot be read, or is not what is asked for.
    """
    path = Path(path)
    if window is not None and not window[0] < window[1]:
        raise ValueError(f"window must be (low, high) with low < high, not {window}")
    if supported_suffix(path) in NIFTI_SUFFIXES:
        return read_volume(
            path,
            channels=channels,
            size=size,
            slice_index=slice_index,
            max_pixels=max_pixels,
            window=window,
        )
    if slice_index not in (None, 0):
        raise ValueError(f"{path} is a picture: it has no slice {slice_index}")
    return Image(
        pixels=read_picture(path, channels=channels, size=size, max_pixels=max_pixels), path=path
    )
