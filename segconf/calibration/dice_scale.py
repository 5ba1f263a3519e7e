"""Expected Dice as validation images reached it: a curve from what the probabilities say.

``2 * sum(p * m) / (sum(p) + sum(m))`` is too low where small probabilities of a large background
add up. Its odds are corrected by a factor and a power, which keep the order of the images.
"""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from segconf.config.ranges import Count, Number, Positive, Probability, Section

Floats = NDArray[np.float64]
FEWEST_IMAGES = 10
"""Images below which nothing is fitted."""
IDENTITY = (0.0, 1.0)
"""Intercept and slope that change nothing."""
_EDGE = 1e-6  # of expected Dice in the fit: odds of 0 and 1 have no logarithm


class StoredDiceScale(Section):
    """Odds of the Dice are ``e^intercept * o^slope``, where o are those of the expected Dice."""

    intercept: Number
    slope: Positive
    error_before: Probability
    """Mean absolute difference from the Dice of the validation images."""
    error: Probability
    """The same after the correction."""
    images: Count
    groups: Count | None = None

    def of(self, expected: float) -> float:
        """The corrected value; 0, 1 and nan stay what they are."""
        if not 0 < expected < 1:
            return expected
        logit = self.intercept + self.slope * math.log(expected / (1 - expected))
        # The larger of the two exponentials is never taken: it may overflow.
        part = math.exp(-abs(logit))
        return (1.0 if logit > 0 else part) / (1 + part)


def fit_dice_scale(
    expected: Floats, dice: Floats, counts: Mapping[str, int]
) -> StoredDiceScale | None:
    """Fit the curve by the cross-entropy of the Dice, shrunk to the identity.

    With x the log-odds of the expected Dice and q = sigmoid(a + b x), minimise
    ``-sum(d log q + (1 - d) log(1 - q)) + (a^2 + (b - 1)^2) / 2``, which is convex. None where
    fewer than `FEWEST_IMAGES` images have both values, or where the curve does not rise.

    Args:
        expected: (N,) of the images; nan and 0 (nothing was found) are left out.
        dice: (N,) that they reached; nan is left out.
        counts: `images` and `groups` that are behind the fit.
    """
    from scipy.optimize import minimize  # slow to import, and a prediction does not fit

    known = (expected > 0) & ~np.isnan(dice)  # nan > 0 is False
    values, reached = expected[known], dice[known]
    if len(values) < FEWEST_IMAGES:
        return None
    inside = np.clip(values, _EDGE, 1 - _EDGE)
    odds = np.log(inside / (1 - inside))  # (N,)

    def cost(curve: Floats) -> float:
        logits = curve[0] + curve[1] * odds
        # -d log q - (1 - d) log(1 - q) = log(1 + e^z) - d z
        entropy = np.logaddexp(0, logits) - reached * logits
        return float(entropy.sum() + ((curve - IDENTITY) ** 2).sum() / 2)

    intercept, slope = minimize(cost, IDENTITY, method="BFGS").x.tolist()
    if slope <= 0:
        return None
    found = StoredDiceScale(intercept=intercept, slope=slope, error_before=0, error=0, **counts)
    after = np.array([found.of(value) for value in values.tolist()])
    errors = {"error_before": _gap(values, reached), "error": _gap(after, reached)}
    return found.model_copy(update=errors)


def _gap(values: Floats, reached: Floats) -> float:
    return float(np.abs(values - reached).mean())
