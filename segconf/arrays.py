"""NumPy files that are read: their header is checked before any memory is taken."""

import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from segconf.files import check_regular

MOST_BYTES = 16_000_000_000
"""Of the arrays of a file; a larger claim is taken for damage."""
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
BROKEN = (
    OSError,
    ValueError,
    EOFError,
    SyntaxError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)
"""What a damaged file may end in before `ValueError` says it in words."""


def read_array(path: Path, *, mapped: bool = False, limit: int = MOST_BYTES) -> NDArray[Any]:
    """The array of a `.npy` file.

    Args:
        path: the file.
        mapped: leave the values on the disk until they are used.
        limit: bytes of the array at most.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is damaged, holds objects, or is larger than the limit.
    """
    check_regular(path)
    try:
        with path.open("rb") as file:
            _check_header(file, path.stat().st_size, limit)
        array: NDArray[Any] = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        raise
    except BROKEN as error:
        raise ValueError(f"not a whole array ({_short(error)})") from error
    return array


def read_arrays(
    path: Path, names: Sequence[str] | None = None, *, limit: int = MOST_BYTES
) -> dict[str, NDArray[Any]]:
    """Arrays of a `.npz` file by name: all, or those that are named and there.

    Raises:
        OSError: it cannot be opened.
        ValueError: it is damaged, holds objects, or its arrays are larger than the limit.
    """
    check_regular(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            wanted = list(members) if names is None else [n for n in names if n in members]
            left, found = limit, {}
            for name in wanted:
                size = archive.getinfo(members[name]).file_size
                with archive.open(members[name]) as member:
                    left -= _check_header(member, size, left)
                with archive.open(members[name]) as member:
                    content = io.BytesIO(member.read())
                found[name] = np.lib.format.read_array(content, allow_pickle=False)
            return found
    except FileNotFoundError:
        raise
    except (*BROKEN, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"not a whole file of arrays ({_short(error)})") from error


def _check_header(file: IO[bytes], size: int, limit: int) -> int:
    """Bytes that the values take by the header: allowed, and as many as there are."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version}")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > limit or any(side < 0 for side in shape):
        raise ValueError(f"it claims an array of {shape}")
    if claimed != size - file.tell():
        raise ValueError(f"it holds {size - file.tell()} bytes instead of {claimed}")
    return claimed


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
