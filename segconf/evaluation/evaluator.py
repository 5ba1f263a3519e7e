"""Scores of single images and pooled pixels: overlap, distance of the outlines, confidence.

An image is what one file holds: a picture, or a volume, which is judged as a whole.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from monai.metrics.hausdorff_distance import compute_hausdorff_distance
from monai.metrics.surface_dice import compute_surface_dice
from monai.metrics.surface_distance import compute_average_surface_distance
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor

from segconf.calibration.conformal import Counts, class_counts
from segconf.conventions import IGNORE
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.overlap import class_dice, class_iou, expected_dice, foreground_confusion
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.results.maps import Maps

STRATA = ("all", "boundary", "foreground")


Spacing = tuple[float, ...]
PIXELS, MILLIMETRES = "pixels", "mm"
CHALLENGE_LIMIT = 0.65
"""Below this Jaccard index the ISIC challenge counts a case as a failure (0)."""
_PICTURE_AXES = 2


@dataclass(frozen=True, slots=True)
class CaseScores:
    """The row of an image in `cases.csv`; nan where a score is not defined.

    Overlaps and outlines are those of the foreground, every class but 0. `class_dice` has a number
    for each of these classes. Distances between outlines are in the unit: millimetres where the
    spacing is known, else pixels. `surface_distance` is the average over both outlines.
    """

    case: str
    group: str
    dice: float
    iou: float
    challenge_jaccard: float
    aurc: float
    ece: float
    mean_confidence: float
    expected_dice: float
    hausdorff95: float
    surface_distance: float
    surface_dice: float
    unit: str
    class_dice: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Distances on the grid on which an image is evaluated."""

    boundary: float = 5.0
    """Half width of the boundary band, in pixels."""
    surface: float = 2.0
    """How far an outline may be off to count as right in the surface Dice, in millimetres where the
    spacing is known, else in pixels."""


class Evaluator:
    """Counts image after image: pixels pooled by stratum, a row and a summary per image.

    Arrays of a volume begin with its slices: (D, K, H, W), and (D, H, W) for the mask. Those of a
    picture may leave that axis out.
    """

    def __init__(
        self,
        classes: int,
        tolerances: Tolerances,
        *,
        dice_scale: Callable[[float], float] = float,
    ) -> None:
        """Start without any image; `dice_scale` is what `predict` makes of an expected Dice."""
        self.classes = classes
        self.tolerances = tolerances
        self.dice_scale = dice_scale
        self.pooled = {name: ConfidenceMetrics(num_classes=classes) for name in STRATA}
        self.rows: list[CaseScores] = []
        self.summaries: list[ImageSummary] = []
        self.counts: list[Counts] = []
        """Pixels by the probability of each class, of the images that were added by logits."""
        self.referral_scores: list[float] = []
        """Expected Dice over all pixels, annotated or not, as `predict` writes it, of the same."""

    @property
    def groups(self) -> list[str]:
        """The group of each image."""
        return [row.group for row in self.rows]

    def add(
        self,
        case: str,
        probabilities: Tensor,
        mask: NDArray[np.uint8],
        *,
        group: str | None = None,
        spacing: Spacing | None = None,
    ) -> None:
        """Evaluate an image by its probabilities; 255 in the mask = ignore.

        Args:
            case: name of the image.
            probabilities: (K, H, W) or (D, K, H, W).
            mask: (H, W) or (D, H, W).
            group: what the image belongs to; a group of its own when not given.
            spacing: millimetres between the pixels of the mask along its axes, if known.
        """
        values, slices = _with_slices(probabilities, mask)
        metrics = ConfidenceMetrics(num_classes=self.classes)
        metrics.update_probabilities(values, slices)
        self._count(_Name(case, group or case, spacing), metrics, values, slices)

    def add_logits(
        self,
        case: str,
        logits: Tensor,
        mask: NDArray[np.uint8],
        *,
        group: str | None = None,
        spacing: Spacing | None = None,
    ) -> None:
        """Evaluate an image by its logits, calibrated; the rest is as in `add`."""
        values, slices = _with_slices(logits, mask)
        metrics = ConfidenceMetrics(num_classes=self.classes)
        metrics.update(values, slices)
        name = _Name(case, group or case, spacing)
        self._count(name, metrics, values, slices, are_logits=True)
        arrays = values.float().numpy()
        self.counts.append(class_counts(arrays.swapaxes(0, 1), slices))
        maps = Maps.of_grid(arrays)
        found = int(np.count_nonzero(maps.mask))
        expected = expected_dice(maps.overlap, maps.foreground, found)
        self.referral_scores.append(self.dice_scale(expected))

    def _count(
        self,
        name: "_Name",
        metrics: ConfidenceMetrics,
        values: Tensor,
        mask: NDArray[np.uint8],
        *,
        are_logits: bool = False,
    ) -> None:
        truth = (mask > 0) & (mask != IGNORE)
        self.pooled["all"].merge(metrics)
        for stratum, inside in (
            ("boundary", boundary_band(truth, self.tolerances.boundary)),
            ("foreground", truth),
        ):
            part = self.pooled[stratum]
            update = part.update if are_logits else part.update_probabilities
            update(values, np.where(inside, mask, IGNORE))
        found = _Found.of(values, mask, are_logits=are_logits)
        found = replace(found, expected_dice=self.dice_scale(found.expected_dice))
        self.rows.append(_scores(name, found, truth, metrics, self.tolerances.surface))
        self.summaries.append(metrics.summary())


@dataclass(frozen=True, slots=True)
class _Name:
    """An image, the group it belongs to, and the distance between its pixels, if known."""

    case: str
    group: str
    spacing: Spacing | None


def _with_slices(values: Tensor, mask: NDArray[np.uint8]) -> tuple[Tensor, NDArray[np.uint8]]:
    """(D, K, H, W) and (D, H, W) of a volume, or of a picture as a single slice."""
    return (values[None], mask[None]) if mask.ndim == _PICTURE_AXES else (values, mask)


@dataclass(frozen=True, slots=True)
class _Found:
    """What was predicted where the mask says something.

    Attributes:
        foreground: (D, H, W) predicted foreground.
        mean_confidence: nan where nothing is annotated.
        expected_dice: of the foreground.
    """

    foreground: NDArray[np.bool_]
    mean_confidence: float
    expected_dice: float

    @classmethod
    def of(cls, values: Tensor, mask: NDArray[np.uint8], *, are_logits: bool) -> "_Found":
        """One slice after another, because a volume in float64 may not fit into the memory."""
        foreground = np.zeros(mask.shape, np.bool_)
        confidence = overlap = mass = 0.0
        for index, (plane, labels) in enumerate(zip(values, mask, strict=True)):
            wide = plane.double()
            probabilities = (wide.softmax(dim=0) if are_logits else wide).numpy()  # (K, H, W)
            valid = labels != IGNORE
            foreground[index] = (probabilities.argmax(axis=0) > 0) & valid
            weight = np.where(valid, 1 - probabilities[0], 0)  # (H, W)
            confidence += float(probabilities.max(axis=0)[valid].sum())
            overlap += float(weight[foreground[index]].sum())
            mass += float(weight.sum())
        pixels = int(np.count_nonzero(mask != IGNORE))
        return cls(
            foreground,
            confidence / pixels if pixels else math.nan,
            expected_dice(overlap, mass, int(np.count_nonzero(foreground))),
        )


def _scores(
    name: _Name,
    found: _Found,
    truth: NDArray[np.bool_],
    metrics: ConfidenceMetrics,
    tolerance: float,
) -> CaseScores:
    merged = foreground_confusion(metrics.confusion)
    overlap = float(class_iou(merged)[1])
    outlines = _outline_scores(found.foreground, truth, tolerance, name.spacing)
    values = metrics.compute()
    return CaseScores(
        case=name.case,
        group=name.group,
        dice=float(class_dice(merged)[1]),
        iou=overlap,
        challenge_jaccard=0.0 if overlap < CHALLENGE_LIMIT else overlap,
        aurc=values["aurc"],
        ece=values["ece"],
        mean_confidence=found.mean_confidence,
        expected_dice=found.expected_dice,
        hausdorff95=outlines[0],
        surface_distance=outlines[1],
        surface_dice=outlines[2],
        unit=PIXELS if name.spacing is None else MILLIMETRES,
        class_dice=tuple(class_dice(metrics.confusion)[1:].tolist()),
    )


def boundary_band(truth: NDArray[np.bool_], distance: float) -> NDArray[np.bool_]:
    """Pixels whose centre is at most so far from a pixel of the other side of the true outline.

    In each slice on its own, because the distance between slices is not that between pixels. Empty
    where there is no outline: a slice without foreground, or of nothing else.

    Args:
        truth: (H, W) or (D, H, W).
        distance: in pixels.
    """
    if truth.ndim > _PICTURE_AXES:
        return np.stack([boundary_band(plane, distance) for plane in truth])
    if truth.all() or not truth.any():
        return np.zeros_like(truth)
    to_outside: NDArray[np.float64] = distance_transform_edt(truth)
    to_inside: NDArray[np.float64] = distance_transform_edt(~truth)
    return np.where(truth, to_outside, to_inside) <= distance


def _outline_scores(
    found: NDArray[np.bool_],
    truth: NDArray[np.bool_],
    tolerance: float,
    spacing: Spacing | None,
) -> tuple[float, float, float]:
    """Hausdorff-95, average distance and surface Dice of the outlines of (D, H, W).

    All are nan where one of the two is empty.
    """
    if not found.any() or not truth.any():
        return math.nan, math.nan, math.nan
    if len(truth) == 1:
        found, truth = found[0], truth[0]
    first, second = (
        torch.from_numpy(np.stack([~region, region]))[None].float() for region in (found, truth)
    )  # (1, 2, H, W) or (1, 2, D, H, W) each: background and foreground
    # A slice of a volume has the spacing of its rows and columns.
    steps = None if spacing is None else list(spacing[-truth.ndim :])
    with warnings.catch_warnings():
        # MONAI builds on parts of other libraries that announce changes of their own.
        warnings.simplefilter("ignore")
        return (
            float(compute_hausdorff_distance(first, second, percentile=95, spacing=steps)),
            float(compute_average_surface_distance(first, second, symmetric=True, spacing=steps)),
            float(compute_surface_dice(first, second, [tolerance], spacing=steps)),
        )
