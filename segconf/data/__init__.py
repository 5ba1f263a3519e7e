"""Cases, splits and decoded pixels. Batches live in `datasets`, which is slow to import (torch)."""

from segconf.data.cache import Grid, PixelCache
from segconf.data.cases import Case, CaseSet, raise_problems
from segconf.data.discovery import HoldOut, find_cases
from segconf.data.splits import Split, split_cases

__all__ = [
    "Case",
    "CaseSet",
    "Grid",
    "HoldOut",
    "PixelCache",
    "Split",
    "find_cases",
    "raise_problems",
    "split_cases",
]
