"""Which cases a run refers to an expert: the score and the threshold chosen on validation."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.errors import CheckpointError
from segconf.metrics.bootstrap import draw_units, percentile_interval
from segconf.metrics.selective import harmonic_difference
from segconf.results.prediction_folder import DEFAULT_ORDER

FILE_NAME = "triage.json"


SCORES = (
    "expected_dice",
    "mean_confidence",
    "border_confidence",
    "patch_confidence",
    "foreground_confidence",
)
"""Columns of `cases.csv` that say how good a case probably is, high = good."""


@dataclass(frozen=True, slots=True)
class ReferralRule:
    """Refer the cases whose score is below the threshold.

    Attributes:
        score: a column of `cases.csv`, the best of them on validation images.
        threshold: what reached the target on validation; infinite where nothing did.
        target_dice: mean Dice that the cases that are not referred should have.
        share: of the validation cases that were referred to reach it.
    """

    score: str = DEFAULT_ORDER
    threshold: float = math.inf
    target_dice: float = math.nan
    share: float = math.nan


def read_referral_rule(run: Path) -> ReferralRule | None:
    """The rule in a run folder, or beside a weights file; None where there is none."""
    path = (run if run.is_dir() else run.parent) / FILE_NAME
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        threshold = math.inf if values["threshold"] is None else float(values["threshold"])
        rule = ReferralRule(
            values["score"], threshold, float(values["target_dice"]), float(values["share"])
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: not a referral rule ({error}). Remove it, or run `segconf triage` again."
        ) from error
    if rule.score not in SCORES:
        raise CheckpointError(
            f"{path}: unknown score {rule.score}. Remove it, or run `segconf triage` again."
        )
    return rule


Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Referral:
    """Cases to refer so that the mean quality of the others reaches a target.

    Attributes:
        referred: number of cases with the lowest scores.
        share: the same as a share of all cases.
        threshold: score of the worst case that is kept; infinite when none is kept.
        kept_quality: mean quality of the kept cases; nan when none is kept.
    """

    referred: int
    share: float
    threshold: float
    kept_quality: float


def image_risk_curve(score: NDArray[Any], risk: NDArray[Any]) -> Floats:
    """Mean risk of the k best-scored images for k = 1 .. N; tied images share their mean risk.

    Args:
        score: (N,) high = good.
        risk: (N,) such as 1 - Dice.
    """
    _, group, size = np.unique(-np.asarray(score), return_inverse=True, return_counts=True)
    share = (np.bincount(group, risk) / size)[np.sort(group)]  # (N,) expected risk of each place
    return np.cumsum(share) / np.arange(1, len(share) + 1)


def image_aurc(score: NDArray[Any], risk: NDArray[Any], weights: NDArray[Any] | None = None) -> Any:
    """Mean of `image_risk_curve`, for resampled images all at once.

    Args:
        score: (N,) high = good.
        risk: (N,).
        weights: (R, N) how often each image was drawn; every image once when not given.

    Returns:
        (R,) areas; a number without weights.
    """
    drawn = np.ones((1, len(score))) if weights is None else np.asarray(weights, np.float64)
    order = np.argsort(-np.asarray(score), kind="stable")  # (N,) best first
    ranked = np.asarray(score)[order]
    first = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))  # (G,) of each group
    size = np.add.reduceat(drawn[:, order], first, axis=1)  # (R, G) images of each group
    total = np.add.reduceat((drawn * risk)[:, order], first, axis=1)  # (R, G) their risk
    before, risk_before = np.cumsum(size, axis=1) - size, np.cumsum(total, axis=1) - total
    mean = total / np.maximum(size, 1)
    # In a group of g images with mean risk w after n images with risk e, the j-th place has the
    # risk (e + j w) / (n + j) = w + (e - n w) / (n + j).
    area = size * mean + (risk_before - before * mean) * harmonic_difference(before, size)
    areas = area.sum(axis=1) / size.sum(axis=1)
    return float(areas[0]) if weights is None else areas


def aurc_interval(
    score: NDArray[Any], risk: NDArray[Any], *, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """95% percentile interval of `image_aurc` over resampled images."""
    generator = torch.Generator().manual_seed(seed)
    weights = draw_units(len(score), generator, resamples=resamples)  # (R, N)
    return percentile_interval(image_aurc(score, risk, weights))


def share_to_refer(score: NDArray[Any], quality: NDArray[Any], target: float) -> Referral:
    """Fewest cases to refer, lowest scores first, so that the others have a mean quality.

    Cases with equal scores are referred together. Where even the best-scored case is not good
    enough, all are referred.

    Args:
        score: (N,) high = good.
        quality: (N,) such as Dice.
        target: mean quality that the kept cases must reach.
    """
    values, group, size = np.unique(score, return_inverse=True, return_counts=True)
    total = np.bincount(group, quality)
    kept = np.cumsum(size[::-1])[::-1]  # (G,) cases with this score or a higher one
    mean = np.cumsum(total[::-1])[::-1] / kept
    reached = np.flatnonzero(mean >= target)
    count = len(group)
    if reached.size == 0:
        return Referral(count, 1.0, float("inf"), float("nan"))
    first = reached[0]
    referred = count - int(kept[first])
    return Referral(referred, referred / count, float(values[first]), float(mean[first]))
