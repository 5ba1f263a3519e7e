"""PNG files written with OpenCV, and files that are complete or absent."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from segconf.files import replacing

_GREY_AXES, _COLOUR_AXES = 2, 3
# OpenCV looks for runs only unless told otherwise: confidence maps then need twice the space. Its
# filter and level are right as they are, and naming the level would change the filter.
_SETTING = [cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_DEFAULT]


@contextmanager
def complete_file(path: Path) -> Iterator[Path]:
    """A temporary name with the suffix of `path` that becomes `path` when the block succeeds.

    Raises:
        FileError: the file cannot be written.
    """
    suffix = "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix
    with replacing(path) as temporary:
        named = temporary.with_name(temporary.name + suffix)
        try:
            yield named
            named.replace(temporary)
        finally:
            with suppress(OSError):
                named.unlink(missing_ok=True)


def write_png(path: Path, pixels: NDArray[Any]) -> None:
    """Write (H, W) uint8 or uint16 grey, or (H, W, 3) uint8 colour; complete or not at all.

    Raises:
        FileError: the file cannot be written.
    """
    content = png_bytes(pixels)
    with complete_file(path) as temporary:
        temporary.write_bytes(content)


def png_bytes(pixels: NDArray[Any]) -> bytes:
    """The content of a PNG file: the Sub filter, then zlib at level 1.

    A confidence map takes a fifth of the time of pillow's default level and a tenth more space at
    most (`benchmarks/png.py`).
    """
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.ndim not in (_GREY_AXES, _COLOUR_AXES):
        raise ValueError(f"{pixels.dtype} with {pixels.ndim} axes is not written as PNG")
    pixels = np.ascontiguousarray(pixels)
    if pixels.ndim == _COLOUR_AXES:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)  # OpenCV has blue first
    _, content = cv2.imencode(".png", pixels, _SETTING)
    encoded: bytes = content.tobytes()
    return encoded
