"""EXIF orientation: how it is found, and how pixels are turned upright."""

import struct
from typing import BinaryIO, TypeVar

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from PIL import ExifTags, TiffTags
from PIL.ImageFile import ImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

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
