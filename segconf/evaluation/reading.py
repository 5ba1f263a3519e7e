"""An evaluation read back: metrics, counts of the images, curves; whole, or refused."""

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from segconf.arrays import read_arrays
from segconf.config.records import read_record
from segconf.config.schema import NaturalNumber, Number, OpenSection, Temperature
from segconf.errors import CheckpointError
from segconf.files import described
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.reliability import ReliabilityCurve
from segconf.metrics.risk_coverage import RiskCoverageCurve

Kept = TypeVar("Kept", ImageSummary, RiskCoverageCurve, ReliabilityCurve)
_FEWEST_CLASSES = 2


class StoredEvaluation(OpenSection):
    """What is read back from `metrics.json` of a run; the rest is for people."""

    method: str
    labeled: NaturalNumber
    seed: NaturalNumber | None = None
    grid: str
    temperature: Temperature = 1.0
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


def load_summaries(path: Path, *, way_out: str) -> tuple[dict[str, ImageSummary], list[str]]:
    """Summaries by case, and the groups that the cases belong to.

    Raises:
        CheckpointError: the file is damaged; ends with the way out.
    """
    try:
        content = read_arrays(path)
        cases = [str(case) for case in content["cases"].ravel()]
        groups = [str(group) for group in content["groups"].ravel()]
        if not cases or len(set(cases)) < len(cases) or len(groups) != len(cases):
            raise ValueError("cases without a name or a group")  # noqa: TRY301 - one message
        found = [_restored(ImageSummary, content, f"{n:05d}_") for n in range(len(cases))]
        for summary in found:
            _check_summary(summary, found[0])
    except (OSError, ValueError, KeyError) as error:
        raise _refused(path, error, way_out) from error
    return dict(zip(cases, found, strict=True)), groups


def load_curves(path: Path, *, way_out: str) -> tuple[RiskCoverageCurve, ReliabilityCurve]:
    """The risk-coverage and the reliability curve over all pixels.

    Raises:
        CheckpointError: the file is damaged; ends with the way out.
    """
    try:
        content = read_arrays(path)
        risk = _restored(RiskCoverageCurve, content, "curve_")
        bins = _restored(ReliabilityCurve, content, "reliability_")
        _check_lengths(risk.coverage, risk.risk, risk.optimal_risk, risk.confidence)
        _check_lengths(bins.lower, bins.upper, bins.confidence, bins.accuracy, bins.count)
    except (OSError, ValueError, KeyError) as error:
        raise _refused(path, error, way_out) from error
    return risk, bins


def _refused(path: Path, error: Exception, way_out: str) -> CheckpointError:
    reason = f"{error} is missing" if isinstance(error, KeyError) else described(error)
    return CheckpointError(f"{path}: not a readable evaluation ({reason}). {way_out}")


def _restored(kind: type[Kept], content: Mapping[str, NDArray[Any]], prefix: str) -> Kept:
    """A dataclass from the arrays of its fields; an array without axes is a number."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        value = content[prefix + field.name]
        if value.dtype.kind not in "iuf" or (field.type is float) != (value.ndim == 0):
            raise ValueError(f"{prefix}{field.name} is {value.dtype} {value.shape}")
        values[field.name] = float(value) if value.ndim == 0 else value
    return kind(**values)


def _check_summary(summary: ImageSummary, first: ImageSummary) -> None:
    """Refuse counts that do not belong together, or cannot have been counted."""
    _check_lengths(summary.bins, summary.correct, summary.wrong)
    counts = (summary.correct, summary.wrong, summary.confusion)
    classes = len(first.confusion)
    pixels = int(summary.correct.sum() + summary.wrong.sum())
    if (
        classes < _FEWEST_CLASSES
        or summary.confusion.shape != (classes, classes)
        or any(part.dtype.kind not in "iu" for part in (*counts, summary.bins))
        or any((part < 0).any() for part in counts)
        or int(summary.confusion.sum()) != pixels
    ):
        raise ValueError("counts of an image that contradict each other")
    _check_lengths(summary.calibration_gap, first.calibration_gap)
    if not np.isfinite([*summary.calibration_gap, summary.brier]).all():
        raise ValueError("sums of an image that are not finite")


def _check_lengths(*arrays: NDArray[Any]) -> None:
    if any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        raise ValueError("arrays of different lengths")
