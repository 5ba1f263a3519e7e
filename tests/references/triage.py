"""Referral and detection by slow, obvious loops."""


def risk_curve(scores, risks):
    """Mean risk of the k best images; an image counts with the mean risk of those tied with it."""
    shared = []
    for score in scores:
        tied = [risk for other, risk in zip(scores, risks, strict=True) if other == score]
        shared.append(sum(tied) / len(tied))
    ordered = [risk for _, risk in sorted(zip(scores, shared, strict=True), key=lambda p: -p[0])]
    return [sum(ordered[:k]) / k for k in range(1, len(ordered) + 1)]


def cases_to_refer(scores, qualities, target):
    """Fewest cases, all below some score, without which the mean quality reaches the target."""
    for limit in sorted(set(scores)):
        kept = [q for s, q in zip(scores, qualities, strict=True) if s >= limit]
        if sum(kept) / len(kept) >= target:
            return len(scores) - len(kept)
    return len(scores)


def detection_error(own, others):
    """Smallest mean of both error rates over every threshold that makes a difference."""
    errors = []
    for limit in [float("-inf"), *own, *others]:
        refused = sum(value > limit for value in own) / len(own)
        accepted = sum(value <= limit for value in others) / len(others)
        errors.append((refused + accepted) / 2)
    return min(errors)


def nearest_fpr(own, others, recall=0.95):
    """Strangers accepted where the share of accepted own images is nearest to the recall."""
    best = None
    for limit in sorted({*own, *others}):
        distance = abs(sum(value <= limit for value in own) / len(own) - recall)
        accepted = sum(value <= limit for value in others) / len(others)
        if best is None or distance < best[0]:
            best = (distance, accepted)
    return best[1]
