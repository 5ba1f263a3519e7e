"""What `calibrate` fits for masks: risk threshold, error rates, referral, contours."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.calibration.calibrators import Calibrator
from segconf.calibration.conformal import (
    Counts,
    class_counts,
    fit_contours,
    pooled_by_group,
)
from segconf.calibration.dice_scale import fit_dice_scale
from segconf.calibration.error_rates import scale_of
from segconf.calibration.fitted import Fitted, Targets, stored_error_rates, stored_threshold
from segconf.calibration.isotonic import fit_error_rates
from segconf.calibration.referral import fit_notes, fit_referral, scores_of
from segconf.calibration.referral_guarantee import SCORE, certify_referral
from segconf.calibration.stored import StoredNote, StoredReferral
from segconf.calibration.threshold import fit_threshold
from segconf.confidence import FloatArray
from segconf.conventions import IGNORE
from segconf.data.cases import ImageCases
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.overlap import dice
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.results.maps import Maps
from segconf.results.rows import CaseRow
from segconf.results.summary import summarize
from segconf.runs.run_cases import whole_images


def fit_masks(
    batches: Iterator[tuple[Tensor, Tensor]],
    images: Sequence[ImageCases],
    calibrator: Calibrator,
    targets: Targets,
    *,
    classes: int,
    reserved: float,
) -> Fitted:
    """Fit all parts but the calibrator.

    Args:
        batches: a pass over all images: logits (B, K, h, w) of the network, and masks.
        images: in the order of the batches.
        calibrator: that was fitted.
        targets: what is to be kept.
        classes: of the network.
        reserved: part of the referral budget that is kept for out-of-distribution images.
    """
    found = _measure(batches, images, calibrator, classes=classes)
    if not found.pooled.pixels:
        return Fitted(found.before, found.pooled, {})
    groups = [image.group for image in found.images]
    counts: dict[str, Any] = {"images": len(groups), "groups": len(set(groups))}
    threshold = fit_threshold(found.pooled, found.summaries, targets.max_risk, groups=groups)
    rates = fit_error_rates(found.pooled.groups(), classes)
    shaded = scale_of(rates, classes).shaded
    expected = np.array([row.expected_dice for row in found.rows])
    scale = fit_dice_scale(expected, found.dice, counts)
    rows = [
        replace(
            row,
            shaded_fraction=one.fraction_below(shaded),
            expected_dice=row.expected_dice if scale is None else scale.of(row.expected_dice),
        )
        for row, one in zip(found.rows, found.summaries, strict=True)
    ]
    target, refer_fraction = targets.target_dice, targets.refer_fraction
    budget = refer_fraction - reserved
    referral = fit_referral(rows, found.dice, target, budget=budget, groups=groups)
    of_cases = [case.group for image in found.images for case in image.cases]
    pooled = pooled_by_group(found.counts, of_cases)
    contours, curves = fit_contours(pooled, sorted(set(targets.guarantees)), len(groups))
    parts = {
        "threshold": stored_threshold(threshold, counts),
        "error_rates": stored_error_rates(rates, counts),
        "referral": StoredReferral(
            score=referral.score,
            threshold=referral.threshold,
            refer_fraction=refer_fraction,
            reserved=reserved,
            fraction=referral.fraction,
            kept_dice=referral.kept_dice,
            kept_dice_interval=referral.interval,
            target_dice=target,
            target_fraction=referral.target_fraction,
            **counts,
        ),
        "notes": tuple(StoredNote(**asdict(one), **counts) for one in fit_notes(rows)),
        "expected_dice": scale,
        "referral_guarantee": certify_referral(
            scores_of(rows, SCORE), found.dice, groups, target_dice=target
        ),
        "contours": contours,
        "contour_curves": curves,
    }
    return Fitted(found.before, found.pooled, parts)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Validation images that have an annotated pixel, by their calibrated logits."""

    before: ConfidenceMetrics
    pooled: ConfidenceMetrics
    images: list[ImageCases]
    summaries: list[ImageSummary]
    rows: list[CaseRow]
    dice: np.ndarray[tuple[int], np.dtype[np.float64]]
    counts: list[Counts]


def _measure(
    batches: Iterator[tuple[Tensor, Tensor]],
    images: Sequence[ImageCases],
    calibrator: Calibrator,
    *,
    classes: int,
) -> _Measured:
    before = ConfidenceMetrics(num_classes=classes)
    pooled = ConfidenceMetrics(num_classes=classes)
    annotated: list[ImageCases] = []
    summaries: list[ImageSummary] = []
    rows: list[CaseRow] = []
    reached: list[float] = []
    counts: list[Counts] = []
    arrays = ((logits.numpy(), masks.numpy()) for logits, masks in batches)
    for image, logits, masks in whole_images(images, arrays):
        if (masks == IGNORE).all():
            continue
        annotated.append(image)
        before.update(logits, masks)
        scaled = calibrator.apply(torch.from_numpy(logits)).numpy()
        metrics = ConfidenceMetrics(num_classes=classes)
        metrics.update(scaled, masks)
        pooled.merge(metrics)
        summaries.append(metrics.summary())
        row, dice_reached = scored_image(image, scaled, masks, shaded=0)
        rows.append(row)
        reached.append(dice_reached)
        counts += [class_counts(one, mask) for one, mask in zip(scaled, masks, strict=True)]
    return _Measured(before, pooled, annotated, summaries, rows, np.array(reached), counts)


def scored_image(
    image: ImageCases, logits: FloatArray, masks: NDArray[np.uint8], *, shaded: float
) -> tuple[CaseRow, float]:
    """The row that `predict` would write, on the network's grid, and the foreground Dice reached.

    The Dice is 1 where both masks are empty: nothing was missed. It is nan where no pixel is
    annotated.

    Args:
        image: a picture or a whole volume.
        logits: (D, K, h, w), calibrated.
        masks: (D, h, w), 255 = ignore.
        shaded: confidence below which pixels are shaded.
    """
    maps, valid = Maps.of_grid(logits), masks != IGNORE
    _, height, width = masks.shape
    row = CaseRow(image.name, image.path.name, height, width, group=image.group)
    overlap = dice((maps.mask > 0) & valid, (masks > 0) & valid)
    reached = 1.0 if math.isnan(overlap) and valid.any() else overlap
    return summarize(row, maps, shaded=shaded), reached
