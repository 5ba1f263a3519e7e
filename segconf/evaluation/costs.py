"""What a method costs: time to train, passes and time per image to predict."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segconf.errors import CheckpointError


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


def training_seconds(run: Path) -> float | None:
    """Time that the training steps of a run took, validation not included; None if not known.

    The networks of an ensemble add up. An epoch that was repeated after an interruption counts
    once: its last time.
    """
    tables = [*run.glob("timing.csv"), *run.glob("members/*/timing.csv")]
    return sum(_seconds(table) for table in tables) if tables else None


def _seconds(table: Path) -> float:
    try:
        with table.open(newline="", encoding="utf-8") as file:
            rows = {row["epoch"]: float(row["training_seconds"]) for row in csv.DictReader(file)}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{table}: cannot be read as the times of a training ({error}). Remove the file to go "
            "on without them."
        ) from error
    return sum(rows.values())


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
