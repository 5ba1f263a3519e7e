"""How many pixels were right and wrong at each confidence, in bounded memory.

Up to 4 million pixels every value is kept, so ranks are exact. Beyond that the values are counted
in bins that are the leading bits of the float32 pattern: relative width 2^-16 between 2^-20 and
2^10. Which of the two is used depends on the number of pixels alone, never on their order.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EXACT_PIXELS = 1 << 22

_SHIFT = 7  # float32 has 23 mantissa bits, a bin keeps 16 of them
_LOWEST = (127 - 20) << 23  # bit pattern of 2^-20; smaller values share the first bin
_HIGHEST = (127 + 10) << 23  # bit pattern of 2^10; larger values share the last bin
_BINS = ((_HIGHEST - _LOWEST) >> _SHIFT) + 1
_MAGNITUDE = 0x7FFFFFFF
_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class Groups:
    """Pixels that share a value, by descending value: (G,) arrays."""

    value: NDArray[np.float32]  # the smallest one where a bin holds several
    correct: NDArray[np.int64]
    wrong: NDArray[np.int64]


class RankingHistogram:
    """Counts of right and wrong pixels over a non-negative ranking value."""

    def __init__(self) -> None:
        # Float32 bit patterns whose sign bit says "wrong", until there are too many of them.
        self._patterns: list[NDArray[np.int32]] = []
        self._kept = 0
        self._counts: NDArray[np.int64] | None = None  # (2, bins): correct, wrong

    def add(self, value: Tensor, wrong: Tensor) -> None:
        """Count N pixels.

        Args:
            value: (N,) float32, not negative; infinity is allowed.
            wrong: (N,) boolean, or 0 and 1.
        """
        bits = value.contiguous().view(torch.int32)
        if self._counts is None and self._kept + len(bits) <= EXACT_PIXELS:
            self._keep((bits | (wrong.int() << 31)).numpy())
        else:
            self._count(bits, wrong)

    def merge(self, other: "RankingHistogram") -> None:
        """Add the pixels of another histogram."""
        kept = self._kept + other._kept
        if self._counts is None and other._counts is None and kept <= EXACT_PIXELS:
            self._patterns += other._patterns
            self._kept = kept
            return
        for patterns in other._patterns:
            self._count_patterns(patterns)
        if other._counts is not None:
            counts = self._binned()
            counts += other._counts

    def groups(self, key: Callable[[NDArray[np.float32]], NDArray[Any]]) -> Iterator[Groups]:
        """Blocks of groups by descending value; values with the same ``key`` are one group."""
        return _merge_ties(self._entries(), key)

    def state_dict(self) -> dict[str, Tensor]:
        """The state as tensors; bins without pixels are left out."""
        patterns = np.concatenate([np.empty(0, np.int32), *self._patterns])
        state = {"patterns": torch.from_numpy(patterns)}
        if self._counts is not None:
            used = np.flatnonzero(self._counts.any(axis=0))
            state["bins"] = torch.from_numpy(used.astype(np.int32))
            state["counts"] = torch.from_numpy(self._counts[:, used])
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Replace the state."""
        self._patterns, self._kept, self._counts = [], 0, None
        self._keep(state["patterns"].numpy().copy())
        if "bins" in state:
            self._binned()[:, state["bins"].numpy()] = state["counts"].numpy()

    def _keep(self, patterns: NDArray[np.int32]) -> None:
        self._patterns.append(patterns)
        self._kept += len(patterns)

    def _binned(self) -> NDArray[np.int64]:
        """The bins; what was kept so far moves into them."""
        if self._counts is None:
            self._counts = np.zeros((2, _BINS), np.int64)
            while self._patterns:
                self._count_patterns(self._patterns.pop())
            self._kept = 0
        return self._counts

    def _count_patterns(self, patterns: NDArray[np.int32]) -> None:
        for start in range(0, len(patterns), _BLOCK):
            part = torch.from_numpy(patterns[start : start + _BLOCK])
            self._count(part & _MAGNITUDE, part < 0)

    def _count(self, bits: Tensor, wrong: Tensor) -> None:
        index = bits.clamp(_LOWEST, _HIGHEST).sub_(_LOWEST).bitwise_right_shift_(_SHIFT)
        index = index.add_(wrong, alpha=_BINS).long()
        np.add.at(self._binned().reshape(-1), index.numpy(), 1)

    def _entries(self) -> Iterator[Groups]:
        """Blocks by descending value, in which a value can occur repeatedly."""
        if self._counts is None:
            yield from self._kept_entries()
            return
        for stop in range(_BINS, 0, -_BLOCK):
            start = max(stop - _BLOCK, 0)
            correct, wrong = self._counts[:, start:stop]
            used = np.flatnonzero(wrong + correct)[::-1]
            if used.size:
                bits = ((used + start) << _SHIFT) + _LOWEST
                bits[used + start == 0] = 0
                value = bits.astype(np.int32).view(np.float32)
                yield Groups(value, correct[used], wrong[used])

    def _kept_entries(self) -> Iterator[Groups]:
        patterns = np.concatenate([np.empty(0, np.int32), *self._patterns]).view(np.uint32)
        # The sign bit moves to the end, so that sorting is by value first.
        keys = (patterns << np.uint32(1)) | (patterns >> np.uint32(31))
        keys.sort()
        for stop in range(len(keys), 0, -_BLOCK):
            block = keys[max(stop - _BLOCK, 0) : stop][::-1]
            wrong = (block & np.uint32(1)).astype(np.int64)
            yield Groups((block >> np.uint32(1)).view(np.float32), 1 - wrong, wrong)


def _merge_ties(
    blocks: Iterator[Groups], key: Callable[[NDArray[np.float32]], NDArray[Any]]
) -> Iterator[Groups]:
    """Join neighbours with equal key, also across the borders of blocks."""
    pending: Groups | None = None
    for block in blocks:
        joined = block if pending is None else _concatenate(pending, block)
        keys = key(joined.value)
        last = np.flatnonzero(np.append(keys[1:] != keys[:-1], True))  # last entry of each group
        first = np.append(0, last[:-1] + 1)
        merged = Groups(
            joined.value[last],
            np.add.reduceat(joined.correct, first),
            np.add.reduceat(joined.wrong, first),
        )
        # The last group may go on in the next block.
        if len(last) > 1:
            yield Groups(merged.value[:-1], merged.correct[:-1], merged.wrong[:-1])
        pending = Groups(merged.value[-1:], merged.correct[-1:], merged.wrong[-1:])
    if pending is not None:
        yield pending


def _concatenate(first: Groups, second: Groups) -> Groups:
    return Groups(
        np.concatenate([first.value, second.value]),
        np.concatenate([first.correct, second.correct]),
        np.concatenate([first.wrong, second.wrong]),
    )
