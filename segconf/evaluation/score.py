"""The metrics of `evaluate` for probability maps that any other tool wrote."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from segconf.data.cases import ImageCases, images_of, pair_folder, strip_mask_suffix
from segconf.data.groups import GROUPS, group_of, read_groups
from segconf.errors import ConfigError, DataError
from segconf.evaluation.evaluator import Evaluator, Tolerances
from segconf.evaluation.prediction_files import BINARY, PredictedCase, find_predictions
from segconf.evaluation.report import REPORT_FILES, EvaluationReport, build_report, write_report
from segconf.images.image_format import image_suffix
from segconf.images.io import read_header
from segconf.images.masks import check_place, read_mask
from segconf.images.types import Header
from segconf.metrics.level_bounds import nll_bounds
from segconf.metrics.selective import aurc_bounds
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.outputs import check_output

PICTURE_AXES = 2
VOLUME_AXES = 4


@dataclass(frozen=True, slots=True)
class Scored:
    """The report, and how far the storage of the maps limits it."""

    report: EvaluationReport
    aurc_bounds: tuple[float, float] | None
    """AURC over all orders of pixels that share a level; None for floating point."""
    nll_bounds: tuple[float, float] | None
    """NLL over all confidences that are rounded to these levels; None for floating point."""


def score(  # noqa: PLR0913 - an entry function: every value that can be chosen
    predictions: Path,
    masks: Path,
    *,
    classes: int = BINARY,
    out: Path | None = None,
    allow_quantized: bool = False,
    ignore_255: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Scored:
    """Evaluate a folder of predictions by a folder of masks of the same names.

    Args:
        predictions: see `find_predictions` for what is understood.
        masks: pictures or NIfTI files; `_segmentation` and `_mask` in names are tolerated.
        classes: number of classes K.
        out: folder for the report; nothing is written when not given.
        allow_quantized: accept confidence of 8 bits.
        ignore_255: with more than two classes, whether 255 in a mask marks pixels without a class.
        on_progress: called with a label, the cases done and their number.
    """
    if ignore_255 and classes == BINARY:
        raise ConfigError(
            "ignore_255 = True: in masks of two classes 255 is the foreground. Give the number of "
            "classes, or leave it out."
        )
    if out is not None:
        check_output(out, inputs=[predictions, masks], known=REPORT_FILES)
    found = find_predictions(predictions, classes=classes, allow_quantized=allow_quantized)
    truths = _masks_by_name(masks)
    evaluator = Evaluator(classes, Tolerances())
    levels = 0
    for number, case in enumerate(found, start=1):
        if case.name not in truths:
            raise DataError(f"{case.path}: no mask called {case.name} in {masks}.")
        _add_case(evaluator, case, truths[case.name], ignore_255=ignore_255)
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
    ranking = nll = None
    if levels and found.are_confidence:
        ranking = _aurc_bounds(evaluator.pooled["all"])
        nll = nll_bounds(evaluator.pooled["all"], levels)
        about |= {"aurc_bounds": list(ranking), "nll_bounds": list(nll)}
    if found.are_confidence and classes > BINARY:
        about["note"] = "nll and brier assume that the classes not predicted are equally likely"
    report = build_report(evaluator, about)
    if out is not None:
        write_report(report, out)
    return Scored(report, ranking, nll)


def _masks_by_name(folder: Path) -> dict[str, ImageCases]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Give the folder that holds the masks.")
    paired = pair_folder(folder, None)
    if paired.problems:
        raise DataError(paired.problems[0])
    masks = {strip_mask_suffix(mask.name): mask for mask in images_of(paired.cases)}
    files = {name: [mask.path] for name, mask in masks.items()}
    table, problems = read_groups(folder.parent / GROUPS, files, complete=False)
    if problems:
        raise DataError(problems[0])
    return {name: replace(mask, group=group_of(name, table)) for name, mask in masks.items()}


def _aurc_bounds(metrics: ConfidenceMetrics) -> tuple[float, float]:
    correct = int(metrics.confusion.trace())
    return aurc_bounds(metrics.groups(), correct, metrics.pixels - correct)


def _add_case(
    evaluator: Evaluator, case: PredictedCase, mask: ImageCases, *, ignore_255: bool
) -> None:
    path = mask.path
    truth = read_mask(path, classes=evaluator.classes, ignore_255=ignore_255)
    header = read_header(path)
    probabilities = _oriented(case, header)
    if truth.shape != tuple(probabilities.shape[1:]):
        raise DataError(
            f"{case.path}: {tuple(probabilities.shape[1:])}, its mask {path.name} "
            f"{truth.shape}. Predictions must have the size of their masks."
        )
    try:
        values = probabilities if truth.ndim == PICTURE_AXES else probabilities.movedim(0, 1)
        evaluator.add(case.name, values, truth, group=mask.group, spacing=header.spacing())
    except ValueError as error:
        raise DataError(f"{case.path}: {error}") from error


def _oriented(case: PredictedCase, mask: Header) -> Tensor:
    """Probabilities (K, H, W) or (K, D, H, W) in the orientation in which the mask is read.

    An array has the axes of the file of its mask, the last one first, as nnU-Net saves it.
    """
    if image_suffix(case.path):
        check_place(case.path, read_header(case.path), mask)
        return case.probabilities
    if mask.orientation is None:
        return case.probabilities
    values = case.probabilities.numpy()
    slices = values if values.ndim == VOLUME_AXES else values[:, None]  # (K, k, j, i)
    pixels = np.moveaxis(mask.orientation.pixels(slices.T), -1, 0)  # (K, D, H, W)
    return torch.from_numpy(np.ascontiguousarray(pixels[:, 0] if pixels.shape[1] == 1 else pixels))
