"""The metrics of `evaluate` for predictions that any other tool wrote."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from segconf.data.cases import pair_folder, strip_mask_suffix
from segconf.errors import DataError
from segconf.evaluation.evaluator import Evaluator, Tolerances
from segconf.evaluation.probability_maps import PredictedCase, find_predictions
from segconf.evaluation.report import EvaluationReport, build_report, write_report
from segconf.images.image_format import case_name
from segconf.images.masks import read_mask
from segconf.metrics.selective import aurc_bounds
from segconf.metrics.streaming import ConfidenceMetrics

BINARY = 2


@dataclass(frozen=True, slots=True)
class Scored:
    """The report, and how far the storage of the maps limits it."""

    report: EvaluationReport
    aurc_bounds: tuple[float, float] | None
    """AURC over all orders of pixels that share a level; None for floating point."""


def score(
    predictions: Path,
    masks: Path,
    *,
    classes: int = BINARY,
    out: Path | None = None,
    allow_quantized: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Scored:
    """Evaluate a folder of predictions by a folder of masks of the same names.

    Args:
        predictions: see `find_predictions` for what is understood.
        masks: pictures or NIfTI files; `_segmentation` and `_mask` in names are tolerated.
        classes: number of classes K.
        out: folder for the report; nothing is written when not given.
        allow_quantized: accept confidence of 8 bits.
        on_progress: called with a label, the cases done and their number.
    """
    found = find_predictions(predictions, classes=classes, allow_quantized=allow_quantized)
    truths = _masks_by_name(masks)
    evaluator = Evaluator(classes, Tolerances())
    levels = 0
    for number, case in enumerate(found, start=1):
        _add_case(evaluator, case, truths, masks)
        levels = max(levels, case.levels)
        if on_progress is not None:
            on_progress("predictions", number, len(found.files))
    about: dict[str, object] = {
        "run": predictions.name,
        "method": "given predictions",
        "split": "given masks",
        "grid": "that of the predictions",
        "encoder": "unknown",
        "protocol": "strict",
        "levels": levels or "floating point",
        "masks_without_prediction": sorted(set(truths) - {row.case for row in evaluator.rows}),
    }
    bounds = _aurc_bounds(evaluator.pooled["all"]) if levels else None
    if bounds is not None:
        about["aurc_bounds"] = list(bounds)
    if levels and classes > BINARY:
        about["note"] = "nll and brier assume that the classes not predicted are equally likely"
    report = build_report(evaluator, about)
    if out is not None:
        write_report(report, out)
    return Scored(report, bounds)


def _masks_by_name(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Give the folder that holds the masks.")
    paired = pair_folder(folder, None)
    if paired.problems:
        raise DataError(paired.problems[0])
    files = sorted({case.image_path for case in paired.cases})
    names = {}
    for path in files:
        below = path.relative_to(folder).parent / case_name(path)
        names[strip_mask_suffix(below.as_posix())] = path
    return names


def _aurc_bounds(metrics: ConfidenceMetrics) -> tuple[float, float]:
    correct = int(metrics.confusion.trace())
    return aurc_bounds(metrics.groups(), correct, metrics.pixels - correct)


def _add_case(
    evaluator: Evaluator, case: PredictedCase, truths: dict[str, Path], masks: Path
) -> None:
    path = truths.get(case.name)
    if path is None:
        raise DataError(f"{case.path}: no mask called {case.name} in {masks}.")
    truth = read_mask(path, classes=evaluator.classes)
    if truth.shape != tuple(case.probabilities.shape[1:]):
        raise DataError(
            f"{case.path}: {tuple(case.probabilities.shape[1:])}, its mask {path.name} "
            f"{truth.shape}. Predictions must have the size of their masks."
        )
    try:
        evaluator.add(case.name, case.probabilities, truth)
    except ValueError as error:
        raise DataError(f"{case.path}: {error}") from error
