"""Conformal contours: lines around a lesion that keep a promise on average over new images.

Conformal risk control (Angelopoulos et al.): for a loss in [0, 1] that only falls as a set grows,
the smallest set with ``n / (n + 1) * R + 1 / (n + 1) <= alpha``, where R is the mean loss of n
calibration units, has an expected loss of at most alpha on a new unit that is exchangeable with
them. The sets are ``{probability of a class >= threshold}``.

- Outer contour: the loss is the fraction of the true lesion outside of it. Units without the class
  have nothing to miss and do not count.
- Inner contour: the loss is the fraction of its area that is not lesion, 0 where it is empty. That
  does not only fall as the set shrinks, so its maximum over all smaller sets takes its place. Units
  without an annotated pixel tell nothing and do not count.

A unit is a group, such as a volume or a patient: its pixels count together, because slices and
images of one patient are not exchangeable with those of others.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from segconf.calibration.stored import StoredContour, StoredContourCurve
from segconf.confidence import FloatArray
from segconf.conventions import IGNORE

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]
Kind = Literal["outer", "inner"]
KINDS: tuple[Kind, ...] = ("outer", "inner")

GUARANTEES = (0.05, 0.1)
"""Losses that are promised where nothing else is asked for."""
CURVE = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3)
"""Losses for which thresholds are kept, so that an evaluation can draw promised against kept."""

_PER_UNIT = 16
"""Levels in one unit of the log-odds; a power of two, so that binning is exact."""
_RANGE = 10
LEVELS = np.arange(-_RANGE * _PER_UNIT, _RANGE * _PER_UNIT + 1) / _PER_UNIT
"""(L,) log-odds at which a threshold may lie: probabilities from 0.00005 to 0.99995."""
THRESHOLDS: Floats = expit(LEVELS)
_BINARY = 2


def class_log_odds(logits: FloatArray) -> FloatArray:
    """Log-odds ``log(p / (1 - p))`` of every class but 0 from logits (K, ...); (K - 1, ...)."""
    if len(logits) == _BINARY:
        return logits[1:] - logits[:1]
    others = [
        logsumexp(np.delete(logits, label, axis=0), axis=0) for label in range(1, len(logits))
    ]
    return np.asarray(logits[1:] - np.stack(others), np.float32)


def class_counts(logits: FloatArray, mask: NDArray[np.uint8]) -> Counts:
    """Pixels of an image between the levels, for every class but 0.

    Args:
        logits: (K, ...) calibrated.
        mask: (...) class index; 255 = ignore.

    Returns:
        (K - 1, 2, L + 1): pixels outside and inside of the true mask whose log-odds have reached 0,
        1, ..., L of the levels. They add up over the images of a group.
    """
    valid = mask != IGNORE
    log_odds = class_log_odds(np.moveaxis(logits, 0, -1)[valid].T)  # (K - 1, N)
    reached = np.floor(log_odds * _PER_UNIT).clip(-len(LEVELS), len(LEVELS)).astype(np.int64)
    reached = (reached + _RANGE * _PER_UNIT + 1).clip(0, len(LEVELS))  # (K - 1, N)
    bins = len(LEVELS) + 1
    truth = mask[valid]
    return np.stack(
        [
            np.bincount(one + bins * (truth == label), minlength=2 * bins).reshape(2, bins)
            for label, one in enumerate(reached, start=1)
        ]
    )


def pooled_by_group(counts: Sequence[Counts], groups: Sequence[str]) -> Counts:
    """(U, K - 1, 2, L + 1) counts of every group, in the order in which groups first appear."""
    order = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    pooled = np.zeros((len(order), *counts[0].shape), np.int64)
    for group, one in zip(groups, counts, strict=True):
        pooled[order[group]] += one
    return pooled


def areas(counts: Counts) -> tuple[Floats, Floats]:
    """Pixels (..., L) of the sets at each level: outside and inside of the true mask."""
    above = np.cumsum(counts[..., :0:-1], axis=-1)[..., ::-1].astype(np.float64)
    return above[..., 0, :], above[..., 1, :]


def fractions(counts: Counts, kind: Kind) -> Floats:
    """(U, L) what a contour at each level gets wrong, from the counts (U, 2, L + 1) of a class.

    Outer: the fraction of the lesion outside of it; nan for units without the class. Inner: the
    fraction of its area that is not lesion; 0 where it is empty, nan for units without an annotated
    pixel.
    """
    outside, inside = areas(counts)  # (U, L) each
    if kind == "outer":
        lesion = counts[:, 1].sum(axis=1, dtype=np.float64)[:, None]  # (U, 1)
        return np.where(lesion > 0, 1 - inside / np.maximum(lesion, 1), np.nan)
    annotated = counts.sum(axis=(1, 2))[:, None] > 0  # (U, 1)
    return np.where(annotated, outside / np.maximum(outside + inside, 1), np.nan)


def losses(counts: Counts, kind: Kind) -> Floats:
    """`fractions` made monotone: the outer loss rises with the level, the inner one falls."""
    found = fractions(counts, kind)
    if kind == "outer":
        return found
    return np.maximum.accumulate(found[:, ::-1], axis=1)[:, ::-1]


def conformal_bound(loss: Floats) -> Floats:
    """``n / (n + 1) * R + 1 / (n + 1)`` over the first axis, without units whose loss is nan."""
    known = loss[~np.isnan(loss).any(axis=1)]
    return np.asarray((known.sum(axis=0) + 1) / (len(known) + 1), np.float64)


def choose_level(loss: Floats, alpha: float, kind: Kind) -> int | None:
    """Index of the level with the tightest set whose bound is at most alpha; None if there is none.

    Args:
        loss: (U, L), monotone in the level.
        alpha: the loss that is promised.
        kind: the tightest outer set has the highest level, the tightest inner set the lowest.
    """
    kept = np.flatnonzero(conformal_bound(loss) <= alpha)
    if kept.size == 0:
        return None
    return int(kept[-1] if kind == "outer" else kept[0])


def fit_contours(
    pooled: Counts, alphas: Sequence[float], images: int
) -> tuple[tuple[StoredContour, ...], tuple[StoredContourCurve, ...]]:
    """Contours of every class but 0 for the losses that are asked for, and their curves.

    Args:
        pooled: (U, K - 1, 2, L + 1) counts of the calibration units.
        alphas: losses to promise.
        images: in the units together.
    """
    contours: list[StoredContour] = []
    curves: list[StoredContourCurve] = []
    for label in range(1, pooled.shape[1] + 1):
        for kind in KINDS:
            loss = losses(pooled[:, label - 1], kind)  # (U, L)
            known = loss[~np.isnan(loss).any(axis=1)]
            for alpha in alphas:
                level = _drawn_level(loss, alpha, kind, pooled.shape[1] + 1)
                contours.append(
                    StoredContour(
                        kind=kind,
                        class_index=label,
                        alpha=alpha,
                        threshold=None if level is None else float(THRESHOLDS[level]),
                        risk=None if level is None else float(known[:, level].mean()),
                        groups=len(known),
                        images=images,
                    )
                )
            levels = [_drawn_level(loss, alpha, kind, pooled.shape[1] + 1) for alpha in CURVE]
            points = tuple(
                (alpha, float(THRESHOLDS[level]))
                for alpha, level in zip(CURVE, levels, strict=True)
                if level is not None
            )
            curves.append(StoredContourCurve(kind=kind, class_index=label, points=points))
    return tuple(contours), tuple(curves)


def _drawn_level(loss: Floats, alpha: float, kind: Kind, classes: int) -> int | None:
    """The chosen level, moved so that the predicted outline never crosses the contour.

    A predicted class has a probability of at least 1 / K, so an outer set with a threshold of at
    most 1 / K holds the prediction; an inner set with one of at least 1/2 lies within it. Either
    move only lowers the loss.
    """
    level = choose_level(loss, alpha, kind)
    if level is None:
        return None
    if kind == "outer":
        return min(level, int(np.searchsorted(THRESHOLDS, 1 / classes, side="right")) - 1)
    return max(level, int(np.searchsorted(THRESHOLDS, 0.5)))


def level_of(threshold: float) -> int:
    """Index of the level that a stored threshold lies at."""
    return int(np.abs(THRESHOLDS - threshold).argmin())
