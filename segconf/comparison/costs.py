"""What a method costs: time to train, passes and time per image to predict."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """How tables show a cost: its title, and the number that turns a value into its unit."""

    title: str
    factor: float
    digits: int


COSTS = {
    "training_seconds": Cost("training min", 1 / 60, 1),
    "inference_passes": Cost("passes", 1, 0),
    "inference_seconds_per_image": Cost("ms/image", 1000, 1),
}
"""By their names in `metrics.json`, where times are in seconds."""


def mean_costs(about: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean over runs of the costs that all of them know, in the unit of `metrics.json`."""
    return {
        name: statistics.fmean(run[name] for run in about)
        for name in COSTS
        if all(run.get(name) is not None for run in about)
    }


def cost_cell(costs: Mapping[str, float], name: str) -> str:
    """A cost in the unit of its column; empty where it is not known."""
    if name not in costs:
        return ""
    return f"{costs[name] * COSTS[name].factor:.{COSTS[name].digits}f}"
