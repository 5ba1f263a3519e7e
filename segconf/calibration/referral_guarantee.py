"""Referral with a guarantee: a mean Dice of the images that are kept, with high probability.

Learn then Test (Angelopoulos et al.). A threshold t keeps the images whose score exceeds it. Given
how many groups have an image above t, those groups are independent draws of the groups that a user
would keep, so their mean loss tests the hypothesis "the expected loss, 1 - Dice, of what is kept
exceeds 1 - target": a p-value by Hoeffding and Bentkus. A loss of a group is the mean over its kept
images.

The thresholds that are tested are order statistics at fixed ranks, those that refer 0, 10, ..., 50%
of the groups. Given the value of an order statistic, everything above it is still a sequence of
independent draws, so each p-value is valid; the six tests share the error probability delta equally
(Bonferroni). The score is fixed beforehand too: choosing it by the same images would void the
promise.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, xlogy

from segconf.calibration.stored import StoredReferralGuarantee

SCORE = "expected_dice"
DELTA = 0.1
"""Probability with which the validation images may mislead."""
FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
UNDEFINED = -1.0
"""Score of an image without one, such as one with an empty mask: it is always referred."""


def hoeffding_bentkus(mean: float, count: int, limit: float) -> float:
    """P-value of "the expected loss exceeds the limit", from the mean of losses in [0, 1].

    The smaller one of ``exp(-n KL(mean, limit))`` and ``e P(Binomial(n, limit) <= ceil(n mean))``.
    """
    if count == 0 or mean >= limit:
        return 1.0
    divergence = xlogy(mean, mean / limit) + xlogy(1 - mean, (1 - mean) / (1 - limit))
    bentkus = math.e * bdtr(math.ceil(count * mean), count, limit)
    return float(min(1.0, math.exp(-count * divergence), bentkus))


def certify_referral(
    score: NDArray[Any],
    dice: NDArray[Any],
    groups: Sequence[str],
    *,
    target_dice: float,
    delta: float = DELTA,
) -> StoredReferralGuarantee:
    """The fewest groups to refer so that the mean Dice of what is kept reaches the target.

    Args:
        score: (N,) of the images, high = good; `UNDEFINED` where there is none.
        dice: (N,) that they reached.
        groups: (N,) what belongs together.
        target_dice: expected Dice of the kept images of a group.
        delta: probability that the promise is wrong.

    Returns:
        The rule; without a threshold where so few groups cannot prove it.
    """
    member = np.unique(np.asarray(groups), return_inverse=True)[1]  # (N,)
    units = int(member.max()) + 1
    best = np.full(units, -np.inf)
    np.maximum.at(best, member, score)
    ordered = np.sort(best)
    found: dict[str, Any] = {"threshold": None, "fraction": 1.0, "kept_dice": None, "p_value": 1.0}
    for fraction in FRACTIONS:
        rank = math.floor(fraction * units)
        threshold = max(UNDEFINED, float(ordered[rank - 1])) if rank else UNDEFINED
        kept = np.asarray(score) > threshold  # (N,)
        size = np.bincount(member[kept], minlength=units)
        loss = np.bincount(member[kept], 1 - dice[kept], minlength=units)
        means = loss[size > 0] / size[size > 0]  # (kept groups,)
        mean = float(means.mean()) if len(means) else 1.0
        p_value = hoeffding_bentkus(mean, len(means), 1 - target_dice)
        if p_value <= delta / len(FRACTIONS):
            found = {
                "threshold": threshold,
                "fraction": 1 - float(kept.mean()),
                "kept_dice": 1 - mean,
                "p_value": p_value,
            }
            break
        found["p_value"] = min(found["p_value"], p_value)
    return StoredReferralGuarantee(
        score=SCORE,
        target_dice=target_dice,
        delta=delta,
        groups=units,
        images=len(member),
        **found,
    )
