"""The metrics of an evaluation read back; whole, or refused."""

import math
from pathlib import Path
from typing import Any, Literal

from segconf.config.ranges import NaturalNumber, Number, OpenSection, Temperature
from segconf.config.records import read_record
from segconf.errors import CheckpointError


class StoredEvaluation(OpenSection):
    """What is read back from `metrics.json` of a run; the rest is for people."""

    method: str
    labeled: NaturalNumber
    seed: NaturalNumber | None = None
    grid: str
    temperature: Temperature = 1.0
    weights: Literal["best", "last"] = "best"
    scaling: str = "temperature"
    weights_sha256: str | None = None
    training_seconds: Number | None = None
    inference_passes: Number | None = None
    inference_seconds_per_image: Number | None = None
    metrics: dict[str, dict[str, dict[str, Number | None]]]


def read_metrics(path: Path, *, way_out: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Content of `metrics.json`, and the strict metrics over all pixels; what is null is nan.

    Raises:
        CheckpointError: the file is damaged; ends with the way out.
    """
    found = read_record(path, StoredEvaluation, error=CheckpointError, way_out=way_out)
    strict = found.metrics.get("all", {}).get("strict", {})
    if not strict:
        raise CheckpointError(f"{path}: metrics.all.strict is missing. {way_out}")
    values = {name: math.nan if value is None else value for name, value in strict.items()}
    return found.model_dump(mode="json"), values
