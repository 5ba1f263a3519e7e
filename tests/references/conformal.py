"""Conformal contours and certified referral by slow, obvious loops."""

import math


def missed(log_odds, truth, limit):
    """Fraction of the true pixels below the limit; None where there are none."""
    lesion = [value for value, inside in zip(log_odds, truth, strict=True) if inside]
    return sum(value < limit for value in lesion) / len(lesion) if lesion else None


def wrong_inside(log_odds, truth, limits, limit):
    """Largest fraction of wrong pixels in a set of this limit or of a higher one."""
    worst = 0.0
    for other in limits:
        if other < limit:
            continue
        chosen = [inside for value, inside in zip(log_odds, truth, strict=True) if value >= other]
        if chosen:
            worst = max(worst, chosen.count(False) / len(chosen))
    return worst


def tightest(units, limits, alpha, kind):
    """The limit of the smallest outer or largest inner set with n/(n+1) R + 1/(n+1) <= alpha."""
    kept = []
    for limit in limits:
        if kind == "outer":
            found = [missed(*unit, limit) for unit in units]
        else:
            found = [wrong_inside(*unit, limits, limit) for unit in units]
        found = [loss for loss in found if loss is not None]
        count = len(found)
        mean = sum(found) / count if count else 0.0
        if count / (count + 1) * mean + 1 / (count + 1) <= alpha:
            kept.append(limit)
    if not kept:
        return None
    return max(kept) if kind == "outer" else min(kept)


def binomial_below(count, probability, most):
    """P(Binomial(count, probability) <= most)."""
    return sum(
        math.comb(count, k) * probability**k * (1 - probability) ** (count - k)
        for k in range(min(most, count) + 1)
    )


def hoeffding_bentkus(losses, limit):
    """P-value of "the expected loss exceeds the limit"."""
    count, mean = len(losses), sum(losses) / len(losses)
    if mean >= limit:
        tight = 1.0
    elif mean == 0:
        tight = (1 - limit) ** count
    else:
        divergence = mean * math.log(mean / limit)
        divergence += (1 - mean) * math.log((1 - mean) / (1 - limit))
        tight = math.exp(-count * divergence)
    return min(1.0, tight, math.e * binomial_below(count, limit, math.ceil(count * mean)))
