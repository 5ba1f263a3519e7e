"""Scores of single images and pooled pixels: overlap, distance of the outlines, confidence."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from monai.metrics.hausdorff_distance import compute_hausdorff_distance
from monai.metrics.surface_dice import compute_surface_dice
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from segconf.conventions import IGNORE
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.overlap import dice, expected_dice, iou
from segconf.metrics.streaming import ConfidenceMetrics

STRATA = ("all", "boundary", "foreground")


CHALLENGE_LIMIT = 0.65
"""Below this Jaccard index the ISIC challenge counts a case as a failure (0)."""


@dataclass(frozen=True, slots=True)
class CaseScores:
    """The row of an image in `cases.csv`; nan where a score is not defined."""

    case: str
    dice: float
    iou: float
    challenge_jaccard: float
    aurc: float
    ece: float
    mean_confidence: float
    expected_dice: float
    hausdorff95: float
    surface_dice: float


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Distances in pixels of the grid on which an image is evaluated."""

    boundary: float = 5.0
    """Half width of the boundary band."""
    surface: float = 2.0
    """How far an outline may be off to count as right in the surface Dice."""


class Evaluator:
    """Counts image after image: pixels pooled by stratum, a row and a summary per image."""

    def __init__(self, classes: int, tolerances: Tolerances) -> None:
        """Start without any image."""
        self.classes = classes
        self.tolerances = tolerances
        self.pooled = {name: ConfidenceMetrics(num_classes=classes) for name in STRATA}
        self.rows: list[CaseScores] = []
        self.summaries: list[ImageSummary] = []

    def add(self, case: str, probabilities: Tensor, mask: NDArray[np.uint8]) -> None:
        """Evaluate an image by its probabilities (K, H, W); mask (H, W), 255 = ignore."""
        metrics = ConfidenceMetrics(num_classes=self.classes)
        metrics.update_probabilities(probabilities[None], mask[None])
        self._count(case, metrics, probabilities, mask)

    def add_logits(self, case: str, logits: Tensor, mask: NDArray[np.uint8]) -> None:
        """Evaluate an image by its logits (K, H, W), after the temperature."""
        metrics = ConfidenceMetrics(num_classes=self.classes)
        metrics.update(logits[None], mask[None])
        self._count(case, metrics, logits, mask, are_logits=True)

    def _count(
        self,
        case: str,
        metrics: ConfidenceMetrics,
        values: Tensor,
        mask: NDArray[np.uint8],
        *,
        are_logits: bool = False,
    ) -> None:
        truth = (mask > 0) & (mask != IGNORE)
        self.pooled["all"].merge(metrics)
        for name, inside in (
            ("boundary", boundary_band(truth, self.tolerances.boundary)),
            ("foreground", truth),
        ):
            part = self.pooled[name]
            update = part.update if are_logits else part.update_probabilities
            update(values[None], np.where(inside, mask, IGNORE)[None])
        probabilities = values.double().softmax(dim=0) if are_logits else values.double()
        row = _scores(case, probabilities.numpy(), mask, metrics, self.tolerances.surface)
        self.rows.append(row)
        self.summaries.append(metrics.summary())


def _scores(
    case: str,
    probabilities: NDArray[np.float64],
    mask: NDArray[np.uint8],
    metrics: ConfidenceMetrics,
    tolerance: float,
) -> CaseScores:
    valid = mask != IGNORE
    found = (probabilities.argmax(axis=0) > 0) & valid
    truth = (mask > 0) & valid
    foreground = np.where(valid, 1 - probabilities[0], 0)  # (H, W)
    overlap = iou(found, truth)
    hausdorff95, surface = _outline_scores(found, truth, tolerance)
    values = metrics.compute()
    return CaseScores(
        case=case,
        dice=dice(found, truth),
        iou=overlap,
        challenge_jaccard=0.0 if overlap < CHALLENGE_LIMIT else overlap,
        aurc=values["aurc"],
        ece=values["ece"],
        mean_confidence=float(probabilities.max(axis=0)[valid].mean()) if valid.any() else math.nan,
        expected_dice=expected_dice(
            float(foreground[found].sum()), float(foreground.sum()), int(found.sum())
        ),
        hausdorff95=hausdorff95,
        surface_dice=surface,
    )


def boundary_band(truth: NDArray[np.bool_], distance: float) -> NDArray[np.bool_]:
    """Pixels whose centre is at most so far from a pixel of the other side of the true outline.

    Empty where there is no outline: an image without foreground, or of nothing else.
    """
    if truth.all() or not truth.any():
        return np.zeros_like(truth)
    to_outside: NDArray[np.float64] = distance_transform_edt(truth)
    to_inside: NDArray[np.float64] = distance_transform_edt(~truth)
    return np.where(truth, to_outside, to_inside) <= distance


def _outline_scores(
    found: NDArray[np.bool_], truth: NDArray[np.bool_], tolerance: float
) -> tuple[float, float]:
    """Hausdorff-95 in pixels and surface Dice; nan where one of the two is empty."""
    if not found.any() or not truth.any():
        return math.nan, math.nan
    first, second = (
        torch.from_numpy(np.stack([~region, region]))[None].float() for region in (found, truth)
    )  # (1, 2, H, W) each: background and foreground
    with warnings.catch_warnings():
        # MONAI builds on parts of other libraries that announce changes of their own.
        warnings.simplefilter("ignore")
        distance = compute_hausdorff_distance(first, second, percentile=95)
        surface = compute_surface_dice(first, second, class_thresholds=[tolerance])
    return float(distance), float(surface)
