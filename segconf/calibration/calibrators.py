"""Calibrators: what is done to logits so that their softmax is a calibrated probability.

A calibrator takes logits (B, K, h, w) and returns logits: everything downstream takes their
softmax, and ranks by the log-odds of the confidence, without knowing which calibrator there was.
PyTorch is not imported: a packaged network has its calibrator inside, and describes it without.
"""

import math
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from segconf.config.ranges import Number, Probability, Section, Temperature

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE = 1e-6


class TemperatureScaling(Section):
    """Logits divided by a temperature (Guo et al. 2017)."""

    kind: Literal["temperature"] = "temperature"
    temperature: Temperature = 1.0

    def apply(self, logits: "Tensor") -> "Tensor":
        """``z / T``."""
        return logits / self.temperature

    def describe(self) -> str:
        """In a few words."""
        return f"temperature {self.temperature:.4g}"


class EnsembleScaling(Section):
    """Ensemble temperature scaling (ETS, Zhang et al. 2020): a mixture of three probabilities."""

    kind: Literal["ets"] = "ets"
    temperature: Temperature
    weights: tuple[Probability, Probability, Probability]
    """Of the probabilities at the temperature, of those of the network, and of equal ones."""

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        if abs(sum(self.weights) - 1) > _TOLERANCE:
            raise ValueError("weights must sum to 1")
        return self

    def apply(self, logits: "Tensor") -> "Tensor":
        """``log(w1 softmax(z / T) + w2 softmax(z) + w3 / K)``, from logarithms."""
        parts = [(logits / self.temperature).log_softmax(dim=1), logits.log_softmax(dim=1)]
        parts.append(logits * 0 - math.log(logits.shape[1]))
        used = [
            part + math.log(weight)
            for part, weight in zip(parts, self.weights, strict=True)
            if weight > 0
        ]
        total = used[0]
        for part in used[1:]:
            # The logarithm of a sum, with the larger one in front: neither over- nor underflow.
            larger = total.maximum(part)
            total = larger + (total.minimum(part) - larger).exp().log1p()
        return total

    def describe(self) -> str:
        """In a few words."""
        first, second, third = self.weights
        return (
            f"ensemble temperature scaling, temperature {self.temperature:.4g}, weights "
            f"{first:.3g}, {second:.3g}, {third:.3g}"
        )


class VectorScaling(Section):
    """A factor and an offset for the logit of every class (Guo et al. 2017)."""

    kind: Literal["vector"] = "vector"
    scales: tuple[Number, ...]
    biases: tuple[Number, ...]

    @model_validator(mode="after")
    def _of_the_same_classes(self) -> Self:
        if len(self.scales) != len(self.biases) or len(self.scales) < 2:  # noqa: PLR2004
            raise ValueError("expected a scale and a bias for every class")
        return self

    @property
    def temperature(self) -> float:
        """None of its own."""
        return 1.0

    def apply(self, logits: "Tensor") -> "Tensor":
        """``s_k z_k + b_k``."""
        shape = (1, -1, *[1] * (logits.ndim - 2))
        scales, biases = (
            logits.new_tensor(values).reshape(shape) for values in (self.scales, self.biases)
        )
        return logits * scales + biases

    def describe(self) -> str:
        """In a few words."""
        return f"vector scaling of {len(self.scales)} classes"


Calibrator = Annotated[
    TemperatureScaling | EnsembleScaling | VectorScaling, Field(discriminator="kind")
]
AS_IT_IS = TemperatureScaling()
"""Leaves logits alone."""


def calibrator_in(text: str) -> Calibrator:
    """A calibrator that was written as JSON.

    Raises:
        ValueError: it is none.
    """
    found: Calibrator = TypeAdapter(Calibrator).validate_json(text)
    return found
