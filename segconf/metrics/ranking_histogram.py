"""How many pixels were right and wrong at each confidence, in bounded memory.

Up to 4 million pixels every value is kept, so ranks are exact. Beyond that the values are counted
in bins that are the leading bits of the float32 pattern: relative width 2^-16 between 2^-20 and
2^10. Which of the two is used depends on the number of pixels alone, never on their order.

What a bin leaves out is summed over neighbouring bins, so that the sum over pixels of a smooth
function of the value, such as the confidence, is as good as from the values themselves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.metrics.terms import FixedPointSum

Key: TypeAlias = Callable[[NDArray[np.float32]], NDArray[Any]]

EXACT_PIXELS = 1 << 22

_SHIFT = 7  # float32 has 23 mantissa bits, a bin keeps 16 of them
_OFFSET = (1 << _SHIFT) - 1  # mask of the others
_SPAN_SHIFT = 9  # neighbouring bins of which the mean offset is known: relative width 2^-7
_LEVEL = 8  # neighbouring bins that are one level: relative width 2^-13
_LOWEST = (127 - 20) << 23  # bit pattern of 2^-20; smaller values share the first bin
_HIGHEST = (127 + 10) << 23  # bit pattern of 2^10; larger values share the last bin
_LARGEST = 2.0**10
_INT32_MAX = 0x7FFFFFFF
_BLOCK = 1 << 16
_BINS = (((_HIGHEST - _LOWEST) >> _SHIFT) // _BLOCK + 1) * _BLOCK  # whole blocks
_SPANS = _BINS >> _SPAN_SHIFT


@dataclass(frozen=True, slots=True)
class Groups:
    """Pixels that share a value, by descending value: (G,) arrays."""

    value: NDArray[np.float32]  # the smallest one where a bin holds several
    correct: NDArray[np.int64]
    wrong: NDArray[np.int64]


class RankingHistogram:
    """Counts of right and wrong pixels over a non-negative ranking value.

    Args:
        borders: (E,) values that the pixels above are told apart from: the bin that such a value
            is in ends there, and the next one begins.

    Attributes:
        excess: sum of what wrong pixels have above the largest bin; zero while values are kept.
    """

    def __init__(self, borders: NDArray[np.float32]) -> None:
        bits = borders.view(np.int32)
        bits = np.sort(bits[(bits > _LOWEST) & (bits < _HIGHEST)]) - _LOWEST  # (E,)
        # Bins that are cut by a border, for right and for wrong pixels, and where: (2 E,)
        self._cut = np.append(bits >> _SHIFT, (bits >> _SHIFT) + _BINS)
        self._cut_at = np.append(bits, bits)
        self._span_is_cut = torch.zeros(2 * _SPANS, dtype=torch.bool)
        self._span_is_cut[self._cut >> _SPAN_SHIFT] = True
        # Float32 bit patterns whose sign bit says "wrong", until there are too many of them.
        self._patterns: list[NDArray[np.int32]] = []
        self._kept = 0
        self._counts: NDArray[np.signedinteger] | None = None  # (2, bins): correct, wrong
        self._counted = 0
        self._offsets = np.zeros((2, _SPANS), np.int64)  # sums of the bits left out by bins
        self.excess = FixedPointSum()

    def add(self, value: Tensor, wrong: Tensor) -> None:
        """Count N pixels.

        Args:
            value: (N,) float32, not negative; infinity is allowed.
            wrong: (N,) boolean, or 0 and 1.
        """
        bits, misses = value.contiguous().numpy().view(np.int32), wrong.int().numpy()
        if self._counts is None and self._kept + len(bits) <= EXACT_PIXELS:
            self._patterns.append(bits | (misses << 31))
            self._kept += len(bits)
        else:
            self._count(bits, misses)

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
            counts = self._binned(other._counted)
            counts += other._counts
            self._offsets += other._offsets
            self.excess.merge(other.excess)

    def groups(self, key: Key | None = None) -> Iterator[Groups]:
        """Blocks of groups by descending value; equal values, or equal keys, are one group."""
        if key is None and self._counts is not None:
            return self._entries()  # every bin has a value of its own
        return _merge_ties(self._entries(), key or (lambda value: value))

    def levels(self) -> Iterator[tuple[Groups, NDArray[np.float64]]]:
        """Blocks of groups in any order, in which a value can occur repeatedly.

        Yields:
            Groups, and (2, G) values that stand for their right and wrong pixels: those kept, or
            the mean over a few neighbouring bins on the same side of every border. A sum over
            pixels of a linear function is then exact, that of a smooth one almost.
        """
        if self._counts is None:
            for groups in self._entries():
                value = groups.value.astype(np.float64)
                yield groups, np.broadcast_to(value, (2, len(value)))
            return
        pixels = self._counts.reshape(2, _SPANS, -1).sum(axis=2, dtype=np.int64)
        unit = np.spacing(_smallest(np.arange(_SPANS) << _SPAN_SHIFT)).astype(np.float64)
        offset = self._offsets / np.maximum(pixels, 1) * unit  # (2, spans)
        begins = np.zeros(_BINS, np.bool_)
        begins[::_LEVEL] = True
        begins[self._cut[: len(self._cut) // 2] + 1] = True
        for start in range(0, _BINS, _BLOCK):
            counts = self._counts[:, start : start + _BLOCK]
            if not counts.any():
                continue
            smallest = _smallest(np.arange(start, start + _BLOCK))
            first = np.flatnonzero(begins[start : start + _BLOCK])  # (G,)
            number = np.add.reduceat(counts, first, axis=1, dtype=np.int64)  # (2, G)
            total = np.add.reduceat(counts * smallest.astype(np.float64), first, axis=1)
            mean = total / np.maximum(number, 1) + offset[:, (start + first) >> _SPAN_SHIFT]
            yield Groups(smallest[first], *number), mean

    def state_dict(self) -> dict[str, Any]:
        """The state as tensors and integers; bins without pixels are left out."""
        patterns = np.concatenate([np.empty(0, np.int32), *self._patterns])
        state: dict[str, Any] = {
            "patterns": torch.from_numpy(patterns),
            "offsets": torch.from_numpy(self._offsets.copy()),
            "excess": self.excess.state(),
        }
        if self._counts is not None:
            used = np.flatnonzero(self._counts.any(axis=0))
            state["bins"] = torch.from_numpy(used.astype(np.int32))
            state["counts"] = torch.from_numpy(self._counts[:, used].astype(np.int64))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self._patterns, self._kept = [], 0
        self._patterns.append(state["patterns"].numpy().copy())
        self._kept += len(self._patterns[-1])
        self._counts, self._counted = None, 0
        self._offsets = state["offsets"].numpy().copy()
        self.excess = FixedPointSum(*state["excess"])
        if "bins" in state:
            counts = state["counts"].numpy()
            self._binned(int(counts.sum()))[:, state["bins"].numpy()] = counts

    def _binned(self, more: int) -> NDArray[np.signedinteger]:
        """The bins, with room for more pixels; what was kept so far moves into them."""
        if self._counts is None:
            self._counts = np.zeros((2, _BINS), np.int32)
            while self._patterns:
                self._count_patterns(self._patterns.pop())
            self._kept = 0
        self._counted += more
        # As narrow as possible: what takes time is to fetch counts that are not in the cache.
        if self._counted > _INT32_MAX and self._counts.dtype == np.int32:
            self._counts = self._counts.astype(np.int64)
        return self._counts

    def _count_patterns(self, patterns: NDArray[np.int32]) -> None:
        for start in range(0, len(patterns), _BLOCK):
            part = patterns[start : start + _BLOCK]
            self._count(part & _INT32_MAX, (part >> 31) & 1)

    def _count(self, bits: NDArray[np.int32], wrong: NDArray[np.int32]) -> None:
        if bits.max(initial=0) > _HIGHEST:
            self.excess.merge(_excess(bits, wrong))
            bits = np.minimum(bits, _HIGHEST)
        bits = np.maximum(bits, _LOWEST)  # (N,)
        bits -= _LOWEST
        index = wrong * _BINS  # (N,)
        index += bits >> _SHIFT
        bins = torch.from_numpy(index).long()
        table = torch.from_numpy(self._binned(len(index))).view(-1)
        table.scatter_add_(0, bins, table.new_ones(len(index)))
        span = bins >> _SPAN_SHIFT
        offsets = torch.zeros(2 * _SPANS, dtype=torch.int32)
        offsets.scatter_add_(0, span, torch.from_numpy(bits & _OFFSET))
        self._offsets += offsets.view(2, -1).numpy()
        near = np.flatnonzero(self._span_is_cut.index_select(0, span).numpy())
        self._move_above(bits[near], index[near])

    def _move_above(self, bits: NDArray[np.int32], index: NDArray[np.int32]) -> None:
        """Move what is above a border from the bin that it cuts to the next one."""
        border = np.minimum(np.searchsorted(self._cut, index), len(self._cut) - 1)
        moved = index[(self._cut[border] == index) & (bits > self._cut_at[border])]
        counts = self._binned(0).reshape(-1)
        np.subtract.at(counts, moved, 1)
        np.add.at(counts, moved + 1, 1)

    def _entries(self) -> Iterator[Groups]:
        """Blocks by descending value, in which a value can occur repeatedly."""
        if self._counts is None:
            yield from self._kept_entries()
            return
        for start in range(_BINS - _BLOCK, -1, -_BLOCK):
            counts = self._counts[:, start : start + _BLOCK]
            used = np.flatnonzero(counts[0] | counts[1])[::-1]
            if used.size:
                correct, wrong = (row[used].astype(np.int64) for row in counts)
                yield Groups(_smallest(used + start), correct, wrong)

    def _kept_entries(self) -> Iterator[Groups]:
        patterns = np.concatenate([np.empty(0, np.int32), *self._patterns]).view(np.uint32)
        # The sign bit moves to the end, so that sorting is by value first.
        keys = (patterns << np.uint32(1)) | (patterns >> np.uint32(31))
        keys.sort()
        for stop in range(len(keys), 0, -_BLOCK):
            block = keys[max(stop - _BLOCK, 0) : stop][::-1]
            wrong = (block & np.uint32(1)).astype(np.int64)
            yield Groups((block >> np.uint32(1)).view(np.float32), 1 - wrong, wrong)


def _smallest(bins: NDArray[np.int64]) -> NDArray[np.float32]:
    """Smallest value of each bin; zero for the first one."""
    bits = np.where(bins > 0, (bins << _SHIFT) + _LOWEST, 0)
    return bits.astype(np.int32).view(np.float32)


def _excess(bits: NDArray[np.int32], wrong: NDArray[np.int32]) -> FixedPointSum:
    """Sum of what wrong pixels have above the largest bin."""
    beyond = bits[wrong == 1].view(np.float32).astype(np.float64) - _LARGEST
    return FixedPointSum.of(torch.from_numpy(np.maximum(beyond, 0)))


def _merge_ties(blocks: Iterator[Groups], key: Key) -> Iterator[Groups]:
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
