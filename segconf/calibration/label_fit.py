"""What `calibrate` fits for labels: risk threshold, error rates, referral by confidence."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.calibration.calibrators import Calibrator
from segconf.calibration.fitted import Fitted, Targets, stored_error_rates, stored_threshold
from segconf.calibration.isotonic import fit_error_rates
from segconf.calibration.referral import limit_within
from segconf.calibration.stored import StoredLabelReferral
from segconf.calibration.threshold import fit_threshold
from segconf.metrics.bootstrap import draw_units, mean_interval
from segconf.metrics.label_summary import LabelSummaries
from segconf.metrics.streaming import ConfidenceMetrics


def fit_labels(
    batches: Iterator[tuple[Tensor, Tensor]],
    groups: Sequence[str],
    calibrator: Calibrator,
    targets: Targets,
    *,
    classes: int,
    reserved: float,
) -> Fitted:
    """Fit all parts but the calibrator.

    Args:
        batches: a pass over all images: logits (B, K, 1, 1) of the network, and labels.
        groups: of the images.
        calibrator: that was fitted.
        targets: what is to be kept.
        classes: of the network.
        reserved: part of the budget that the out-of-distribution detector may spend.
    """
    before, pooled = (ConfidenceMetrics(num_classes=classes) for _ in range(2))
    parts: list[LabelSummaries] = []
    for logits, labels in batches:
        before.update(logits, labels)
        scaled = calibrator.apply(logits)
        pooled.update(scaled, labels)
        parts.append(LabelSummaries.of(scaled[:, :, 0, 0], labels[:, 0, 0]))
    found = LabelSummaries.joined(parts)
    counts: dict[str, Any] = {"images": len(groups), "groups": len(set(groups))}
    threshold = fit_threshold(pooled, found, targets.max_risk, groups=groups)
    rates = fit_error_rates(pooled.groups(), classes)
    referral = label_referral(
        found.confidence,
        ~found.wrong,
        groups,
        refer_fraction=targets.refer_fraction,
        reserved=reserved,
    )
    return Fitted(
        before,
        pooled,
        {
            "threshold": stored_threshold(threshold, counts),
            "error_rates": stored_error_rates(rates, counts),
            "label_referral": referral,
        },
    )


def label_referral(
    confidence: NDArray[np.float64],
    correct: NDArray[np.bool_],
    groups: Sequence[str],
    *,
    refer_fraction: float,
    reserved: float = 0.0,
) -> StoredLabelReferral:
    """Refer the least confident images, as many as the budget allows.

    With N images and a budget b, of which r is reserved, the threshold is the confidence of number
    floor((b - r) N), counted from 0 by rising confidence: so many are below it, or fewer where some
    are equal.

    Args:
        confidence: (N,) of the validation images.
        correct: (N,).
        groups: of the images.
        refer_fraction: the budget.
        reserved: what others may spend of it.
    """
    count = len(confidence)
    threshold = limit_within(confidence, refer_fraction - reserved)
    kept = confidence >= threshold
    weights = draw_units(groups, torch.Generator().manual_seed(0))  # (R, N)
    right = np.where(kept, correct, np.nan)
    return StoredLabelReferral(
        threshold=threshold,
        refer_fraction=refer_fraction,
        fraction=float(1 - kept.mean()),
        accuracy=float(correct.mean()),
        kept_accuracy=float(correct[kept].mean()),
        kept_accuracy_interval=mean_interval(right, weights),
        images=count,
        groups=len(set(groups)),
    )
