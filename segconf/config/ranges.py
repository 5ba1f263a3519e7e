"""Types of settings: numbers with their ranges, and sections that are closed and frozen."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict


def _fits_64_bits(number: int) -> int:
    if number >= 2**63:
        raise ValueError("must fit into 64 bits")
    return number


Count = Annotated[int, Strict(), Field(ge=1), AfterValidator(_fits_64_bits)]
NaturalNumber = Annotated[int, Strict(), Field(ge=0), AfterValidator(_fits_64_bits)]
Epochs = Annotated[int, Strict(), Field(ge=1, le=1_000_000)]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Interval = tuple[Number, Number]
TEMPERATURES = (0.001, 1000.0)
"""A temperature outside of these makes every confidence the same."""
Temperature = Annotated[Number, Field(ge=TEMPERATURES[0], le=TEMPERATURES[1])]
Weight = Annotated[Number, Field(ge=0)]
Fraction = Annotated[Number, Field(ge=0, lt=1)]
Probability = Annotated[Number, Field(ge=0, le=1)]
Flag = Annotated[bool, Strict()]
Device = Annotated[
    str,
    Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$", description="auto, cpu, cuda, cuda:N or mps"),
]
Task = Literal["segmentation", "classification"]
MOST_CLASSES = 255
"""Classes are numbered from 0 in 8 bits, and 255 means "not annotated"."""


class Section(BaseModel):
    """Frozen and closed: an unknown key is a mistake, and a run cannot change its settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class OpenSection(Section):
    """A part of a file in which others may have written more."""

    model_config = ConfigDict(extra="allow", frozen=True)
