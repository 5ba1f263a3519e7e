"""Opening pictures with pillow, and turning them upright by their EXIF orientation."""

import math
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL import ExifTags, TiffTags
from PIL.BmpImagePlugin import BmpImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from segconf.errors import DataError
from segconf.files import open_regular
from segconf.images.types import Size, describe_os_error, reason

# The content decides, not the suffix. Constructing the decoder directly, instead of with
# PIL.Image.open, leaves out pillow's fixed limit on the number of pixels without touching its
# process-wide setting; `check_ceiling` takes its place.
_DECODERS: tuple[tuple[bytes, type[ImageFile]], ...] = (
    (b"\xff\xd8\xff", JpegImageFile),
    (b"\x89PNG\r\n\x1a\n", PngImageFile),
    (b"BM", BmpImageFile),
    (b"II*\0", TiffImageFile),
    (b"MM\0*", TiffImageFile),
    (b"II+\0", TiffImageFile),
    (b"MM\0+", TiffImageFile),
)


_BROKEN = (
    *(OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError),
    *(AttributeError, MemoryError, struct.error, zlib.error, PIL.Image.DecompressionBombError),
)


_COLOUR_MODES = frozenset({"RGB", "RGBA", "RGBX", "P", "PA", "CMYK", "YCbCr", "LAB"})


# Warning filters and pillow's pixel limit belong to the whole process: whoever borrows them
# holds this lock and gives them back. Decoding itself runs outside of it, in parallel.
_PROCESS_STATE = threading.Lock()


@dataclass(frozen=True, slots=True)
class Picture:
    """An opened file whose pixels are not decoded yet."""

    decoder: ImageFile
    orientation: int

    @property
    def size(self) -> Size:
        """Height and width after EXIF rotation."""
        width, height = self.decoder.size
        return self.stored((height, width))

    def stored(self, size: Size) -> Size:
        """The same grid in the axes of the file; its own inverse."""
        return size if self.orientation < FIRST_SWAPPED else (size[1], size[0])

    @property
    def channels(self) -> int:
        """Channels without alpha; a palette counts as colour."""
        if self.decoder.mode not in _COLOUR_MODES:
            return 1
        return 4 if self.decoder.mode == "CMYK" else 3


@contextmanager
def open_picture(path: Path) -> Iterator[Picture]:
    """Open a picture for as long as the block lasts; whatever pillow raises is a `DataError`."""
    try:
        with open_regular(path) as stream:
            yield _parse(path, stream)
    except _BROKEN as error:
        if isinstance(error, OSError) and (message := describe_os_error(path, error)):
            raise message from error
        raise DataError(
            f"{path}: the picture is broken or incomplete ({reason(error)}). "
            "Copy or export it again, or remove it."
        ) from error


def _parse(path: Path, stream: BinaryIO) -> Picture:
    """Read the header and the EXIF orientation."""
    start = stream.read(8)
    if not start:
        raise DataError(f"{path}: the file is empty. Copy it again, or remove it.")
    decoder_type = next((kind for sign, kind in _DECODERS if start.startswith(sign)), None)
    if decoder_type is None:
        raise DataError(
            f"{path}: the content is not a JPEG, PNG, BMP or TIFF picture. "
            "Convert it to one of these, or remove it."
        )
    stream.seek(0)
    with _PROCESS_STATE, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # remarks on metadata; broken pixels are an exception
        decoder = decoder_type(stream)
        pages = getattr(decoder, "n_frames", 1)
        orientation = find_orientation(decoder, stream)
    if pages > 1:
        raise DataError(
            f"{path}: the file holds {pages} pictures, and which one is meant is not known. "
            "Save each as a file of its own, or the stack as NIfTI."
        )
    # A transparent colour is metadata too; without it pillow's conversions keep all colours.
    decoder.info.pop("transparency", None)
    return Picture(decoder, orientation)


def decode(decoder: ImageFile) -> None:
    """Decode the pixels in place; a truncated file raises."""
    if not isinstance(decoder, TiffImageFile) or not _is_past_limit(decoder):
        decoder.load()
        return
    with _PROCESS_STATE:  # pillow checks its limit again when it decodes a TIFF file
        limit = PIL.Image.MAX_IMAGE_PIXELS
        PIL.Image.MAX_IMAGE_PIXELS = None
        try:
            decoder.load()
        finally:
            PIL.Image.MAX_IMAGE_PIXELS = limit


def _is_past_limit(decoder: ImageFile) -> bool:
    with _PROCESS_STATE:
        limit = PIL.Image.MAX_IMAGE_PIXELS
    return limit is not None and math.prod(decoder.size) > limit


def grey_values(decoder: ImageFile) -> NDArray[Any]:
    """Grey levels of a deep picture as stored, black = 0 also where the file says white = 0."""
    values = np.asarray(decoder)
    if isinstance(decoder, TiffImageFile) and decoder.tag_v2.get(262) == 0:
        full = 1 if values.dtype == np.float32 else full_scale(decoder)
        return values if full is None else full - values
    return values


def full_scale(decoder: ImageFile) -> int | None:
    """Value of white: 2^bits - 1, or None for integers without a declared range."""
    if isinstance(decoder, TiffImageFile):
        bits: int = decoder.tag_v2.get(258, (16,))[0]
        return 2**bits - 1 if decoder.mode.startswith("I;16") else None
    return 2**16 - 1  # the only deep grey that PNG has


FIRST_SWAPPED = 5
"""Orientations from here on exchange rows and columns."""


_PNG_SIGNATURE_LENGTH = 8


_CHUNK = struct.Struct(">I4s")


_UNREADABLE = (OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, struct.error)


Value = TypeVar("Value", bound=np.generic)


def find_orientation(decoder: ImageFile, stream: BinaryIO) -> int:
    """EXIF orientation 1..8 without decoding pixels; 1 where missing, unreadable or undefined."""
    try:
        if isinstance(decoder, PngImageFile) and "exif" not in decoder.info:
            late = _exif_after_pixels(stream)
            if late:
                decoder.info["exif"] = b"Exif\0\0" + late
        # Not decoder.getexif(), which decodes a whole PNG file to see what comes after the pixels.
        exif = PIL.Image.Image.getexif(decoder)
        orientation = exif.get(ExifTags.Base.Orientation, 1)
        if isinstance(decoder, TiffImageFile):
            for group in TiffTags.TAGS_V2_GROUPS:
                exif.get_ifd(group)  # kept by pillow, which otherwise reads it while decoding
            return 1  # pillow turns TIFF files by itself
    except _UNREADABLE:
        return 1
    return orientation if orientation in range(1, 9) else 1


def _exif_after_pixels(stream: BinaryIO) -> bytes:
    """Content of a PNG file's eXIf chunk, found by hopping from chunk to chunk."""
    position = stream.tell()
    try:
        stream.seek(_PNG_SIGNATURE_LENGTH)
        while len(start := stream.read(_CHUNK.size)) == _CHUNK.size:
            length, name = _CHUNK.unpack(start)
            if name == b"eXIf":
                return stream.read(length)
            stream.seek(length + 4, 1)  # content and checksum
    finally:
        stream.seek(position)
    return b""


def turn_upright(array: NDArray[Value], orientation: int) -> NDArray[Value]:
    """Turn stored rows and columns (H, W, ...) as the EXIF orientation 1..8 says."""
    if orientation >= FIRST_SWAPPED:
        array = array.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return array
