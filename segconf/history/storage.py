"""Working arrays: in memory, or mapped to the disk when they are bigger than it."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from segconf.errors import TrainingError


def zeros(shape: tuple[int, ...], dtype: DTypeLike, scratch: Path | None) -> NDArray[Any]:
    """An empty array, in memory or mapped to a file without a name in a folder."""
    if scratch is None:
        return np.zeros(shape, dtype)
    try:
        return _mapped_zeros(shape, dtype, scratch)
    except OSError as error:
        raise TrainingError(
            f"{scratch}: the history cannot be kept on the disk ({error.strerror or error}). Free "
            "some space, or keep it in memory: --set training.history_storage=memory."
        ) from error


def _mapped_zeros(shape: tuple[int, ...], dtype: DTypeLike, scratch: Path) -> NDArray[Any]:
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        # Without reserved space, a full disk would kill the process at some write much later.
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        return np.asarray(np.memmap(file, dtype, mode="r+", shape=shape))
