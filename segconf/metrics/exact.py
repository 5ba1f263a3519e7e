"""A sum that does not depend on the order of its terms: an integer, in fixed point."""

import math
from typing import Self

from torch import Tensor

_SCALE = 1 << 36


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
