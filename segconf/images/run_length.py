"""Run-length code of masks: what the review page reads, keeps and exports."""

from collections.abc import Sequence

import numpy as np

from segconf.images.types import ByteArray, Size

_LARGEST_CLASS = 255


def encode_runs(mask: ByteArray) -> list[int]:
    """Lengths and classes in turn, `[length, class, length, class, ...]`, row after row.

    A run may go on in the next row. Neighbouring runs differ in their class, so that a mask has one
    code only.

    Args:
        mask: (H, W) class index.
    """
    flat = np.ascontiguousarray(mask, np.uint8).reshape(-1)
    if flat.size == 0:
        return []
    starts = np.concatenate([[0], np.flatnonzero(flat[1:] != flat[:-1]) + 1])
    lengths = np.diff(np.append(starts, flat.size))
    code: list[int] = np.stack([lengths, flat[starts]], axis=1).reshape(-1).tolist()
    return code


def decode_runs(runs: Sequence[int], size: Size) -> ByteArray:
    """The mask (H, W) of a code.

    Raises:
        ValueError: the numbers are no code of a mask of this size.
    """
    if len(runs) % 2 or any(type(number) is not int for number in runs):
        raise ValueError("expected whole numbers, lengths and classes in turn")
    lengths, classes = runs[::2], runs[1::2]
    if any(length < 1 for length in lengths) or sum(lengths) != size[0] * size[1]:
        raise ValueError(f"the lengths do not add up to {size[0]} x {size[1]} pixels")
    if any(not 0 <= value <= _LARGEST_CLASS for value in classes):
        raise ValueError(f"a class is not in 0..{_LARGEST_CLASS}")
    values = np.asarray(classes, np.uint8)
    return values.repeat(np.asarray(lengths, np.int64)).reshape(size)
