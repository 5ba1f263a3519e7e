"""PNG files written fast and row by row: level 1 of zlib after the Sub filter.

On 16-bit confidence maps this takes a fifth of the time of pillow at its default level and the
files are no larger, because pillow cannot be told which filter suits them.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.errors import DataError
from segconf.files import replacing
from segconf.images.types import reason

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SUB_FILTER = 1
_GREY, _COLOUR = 0, 2
_COLOUR_AXES = 3
_BLOCK_BYTES = 1 << 20


def write_png(path: Path, pixels: NDArray[Any]) -> None:
    """Write (H, W) uint8 or uint16 grey, or (H, W, 3) uint8 colour; complete or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.ndim not in (2, _COLOUR_AXES):
        raise ValueError(f"{path}: {pixels.dtype} with {pixels.ndim} axes is not written as PNG")
    try:
        with replacing(path) as temporary, temporary.open("wb") as stream:
            for piece in _pieces(pixels):
                stream.write(piece)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({error.strerror or reason(error)}). "
            "Check that the folder exists, is writable and has space."
        ) from error


def png_bytes(pixels: NDArray[Any]) -> bytes:
    """The same file in memory."""
    return b"".join(_pieces(pixels))


def _pieces(pixels: NDArray[Any]) -> Iterator[bytes]:
    height, width = pixels.shape[:2]
    kind = _COLOUR if pixels.ndim == _COLOUR_AXES else _GREY
    yield _SIGNATURE
    bits = 8 * pixels.itemsize
    yield _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    step = pixels.itemsize * (3 if kind == _COLOUR else 1)  # bytes from a pixel to the next
    packer = zlib.compressobj(1)
    rows = max(1, _BLOCK_BYTES // (width * step))
    for start in range(0, height, rows):
        if packed := packer.compress(_filtered(pixels[start : start + rows], step)):
            yield _chunk(b"IDAT", packed)
    yield _chunk(b"IDAT", packer.flush())
    yield _chunk(b"IEND", b"")


def _filtered(block: NDArray[Any], step: int) -> bytes:
    """Rows of the block, each led by its filter type: every byte minus the one a pixel before."""
    big_endian = np.ascontiguousarray(block.astype(block.dtype.newbyteorder(">"), copy=False))
    plain = big_endian.view(np.uint8).reshape(len(block), -1)
    rows = np.empty((len(block), plain.shape[1] + 1), np.uint8)
    rows[:, 0] = _SUB_FILTER
    rows[:, 1 : step + 1] = plain[:, :step]
    np.subtract(plain[:, step:], plain[:, :-step], out=rows[:, step + 1 :])
    return rows.tobytes()


def _chunk(name: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(name))
    return b"".join([struct.pack(">I", len(content)), name, content, struct.pack(">I", checksum)])
