"""Sums that do not depend on the order of their terms: integers, in fixed point."""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SCALE = 1 << 36
_BINNED_SCALE = 1 << 32


class FixedPointSum:
    """Sum of terms, each rounded to a multiple of 2^-36, in an integer of any length."""

    def __init__(self, units: int = 0, infinite: int = 0) -> None:
        self._units = units
        self._infinite = infinite

    @classmethod
    def of(cls, values: Tensor) -> Self:
        """Sum of (N,) floating point terms, none of them nan."""
        scaled = values.double().mul_(_SCALE).round_()
        total = float(scaled.sum())
        if total < 2.0**53:
            # Every partial sum is an integer that float64 holds exactly, in whatever order.
            return cls(int(total))
        if total < 2.0**62:
            return cls(int(scaled.long().sum()))
        finite = [int(value) for value in scaled.tolist() if math.isfinite(value)]
        return cls(sum(finite), len(scaled) - len(finite))

    def merge(self, other: Self) -> None:
        """Add the terms of another sum."""
        self._units += other._units
        self._infinite += other._infinite

    def total(self) -> float:
        """The sum; infinite if a term was."""
        return self.mean(1)

    def mean(self, count: int) -> float:
        """The sum divided by a number of terms, correctly rounded; nan for none."""
        if count == 0:
            return math.nan
        return math.inf if self._infinite else self._units / (count * _SCALE)

    def state(self) -> tuple[int, int]:
        """Arguments that make an equal sum."""
        return self._units, self._infinite


class BinnedSums:
    """Sums of terms of about 1 at most, rounded to multiples of 2^-32, one for each bin."""

    def __init__(self, units: Sequence[int]) -> None:
        self._units = list(units)

    @classmethod
    def of(cls, cells: Tensor, values: Tensor, shape: tuple[int, int, int]) -> Self:
        """Sums of (N,) terms, not more than a million, over all but the last axis of cells.

        Args:
            cells: (N,) flat index of the cell of each term; its last axis is the bin.
            values: (N,) floating point terms.
            shape: of the cells.
        """
        # As many multiples of 2^-32 have partial sums that float64 holds exactly.
        scaled = values.double().mul_(_BINNED_SCALE).round_()
        totals = torch.bincount(cells, scaled, math.prod(shape)).view(shape).sum(dim=(0, 1))
        return cls([int(total) for total in totals.tolist()])

    def merge(self, other: Self) -> None:
        """Add the terms of other sums with the same bins."""
        pairs = zip(self._units, other._units, strict=True)
        self._units = [mine + theirs for mine, theirs in pairs]

    def totals(self) -> NDArray[np.float64]:
        """(bins,) sums."""
        return np.array([units / _BINNED_SCALE for units in self._units], np.float64)

    def state(self) -> list[int]:
        """Argument that makes equal sums."""
        return list(self._units)
