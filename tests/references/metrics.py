"""Slow, obvious versions of the metrics: one pixel after the other, no histogram, no vector."""

import math
from itertools import permutations


def softmax(logits):
    top = max(logits)
    weights = [math.exp(value - top) for value in logits]
    return [weight / sum(weights) for weight in weights]


def log_odds(logits):
    """Log-odds of the largest class, as a difference of logits so that it does not saturate."""
    top = max(range(len(logits)), key=lambda index: logits[index])
    others = [value for index, value in enumerate(logits) if index != top]
    second = max(others)
    return logits[top] - second - math.log(sum(math.exp(value - second) for value in others))


def aurc(confidence, correct):
    """Mean risk at coverage 1/m ... 1; each of a few tied pixels counts as their mean error."""
    order = sorted(range(len(confidence)), key=lambda index: -confidence[index])
    risks, errors = [], 0.0
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and confidence[order[stop]] == confidence[order[start]]:
            stop += 1
        share = sum(not correct[index] for index in order[start:stop]) / (stop - start)
        for position in range(start, stop):
            errors += share
            risks.append(errors / (position + 1))
        start = stop
    return math.fsum(risks) / len(risks)


def mean_aurc_over_all_orders(correct):
    """AURC averaged over every order of a handful of pixels."""
    areas = []
    for order in permutations(correct):
        errors, risks = 0, []
        for position, right in enumerate(order):
            errors += not right
            risks.append(errors / (position + 1))
        areas.append(sum(risks) / len(risks))
    return sum(areas) / len(areas)


def optimal_aurc(correct):
    """AURC of a confidence that ranks every right pixel above every wrong one."""
    return (
        aurc([float(right) for right in correct], correct)
        if all(correct)
        else aurc(range(len(correct), 0, -1), sorted(correct, reverse=True))
    )


def augrc(confidence, correct):
    """Area under errors/m over coverage by its pairwise form: errors above other pixels."""
    total, size = 0.0, len(correct)
    for i in range(size):
        if correct[i]:
            continue
        for j in range(size):
            if i == j or confidence[i] == confidence[j]:
                total += 0.5
            elif confidence[i] > confidence[j]:
                total += 1.0
    return total / size**2


def fpr_at_95_recall(confidence, correct):
    """FPR at the threshold whose TPR is nearest 0.95, positives = right pixels."""
    right = sum(correct)
    wrong = len(correct) - right
    best = (math.inf, math.nan)
    for threshold in sorted(set(confidence), reverse=True):
        accepted = [c for k, c in zip(confidence, correct, strict=True) if k >= threshold]
        distance = abs(sum(accepted) / right - 0.95)
        if distance < best[0]:
            best = (distance, (len(accepted) - sum(accepted)) / wrong)
    return best[1]


def average_precision_of_errors(confidence, correct):
    """Sum over thresholds of (recall step) * precision, where a pixel is found if not confident."""
    wrong = len(correct) - sum(correct)
    area, found_before = 0.0, 0
    for threshold in sorted(set(confidence)):
        refused = [c for k, c in zip(confidence, correct, strict=True) if k <= threshold]
        found = len(refused) - sum(refused)
        area += (found - found_before) / wrong * found / len(refused)
        found_before = found
    return area


def ece(confidence, correct, bins=15):
    """Pooled top-label ECE with equal-width bins (lo, hi]."""
    total = 0.0
    for index in range(bins):
        inside = [
            (k, c)
            for k, c in zip(confidence, correct, strict=True)
            if index / bins < k <= (index + 1) / bins
        ]
        total += abs(sum(c for _, c in inside) - math.fsum(k for k, _ in inside))
    return total / len(confidence)


def evaluate(pixels, labels):
    """All metrics of lists of logits, pixel by pixel, ranked by log-odds."""
    probabilities = [softmax(logits) for logits in pixels]
    prediction = [max(range(len(p)), key=lambda index, p=p: p[index]) for p in probabilities]
    correct = [guess == truth for guess, truth in zip(prediction, labels, strict=True)]
    ranks = [log_odds(logits) for logits in pixels]
    confidence = [max(p) for p in probabilities]
    classes = range(len(pixels[0]))
    overlaps = []
    for index in classes:
        both = sum(g == index and t == index for g, t in zip(prediction, labels, strict=True))
        either = sum(index in (g, t) for g, t in zip(prediction, labels, strict=True))
        if either:
            overlaps.append(both / either)
    squares = [
        sum((p[index] - (index == truth)) ** 2 for index in classes)
        for p, truth in zip(probabilities, labels, strict=True)
    ]
    mixed = 0 < sum(correct) < len(correct)
    area = aurc(ranks, correct)
    return {
        "miou": sum(overlaps) / len(overlaps),
        "accuracy": sum(correct) / len(correct),
        "aurc": area,
        "eaurc": area - optimal_aurc(correct),
        "augrc": augrc(ranks, correct),
        "fpr95": fpr_at_95_recall(ranks, correct) if mixed else math.nan,
        "aupr_error": average_precision_of_errors(ranks, correct) if not all(correct) else math.nan,
        "ece": ece(confidence, correct),
        "nll": -math.fsum(
            math.log(p[truth]) for p, truth in zip(probabilities, labels, strict=True)
        )
        / len(labels),
        "brier": math.fsum(squares) / len(squares),
    }


def all_pairs_loss(confidence, target):
    """Consistency ranking loss over all pairs with target_i < target_s (not averaged)."""
    total = 0.0
    for k_s, t_s in zip(confidence, target, strict=True):
        for k_i, t_i in zip(confidence, target, strict=True):
            if t_i < t_s:
                total += max(0.0, (t_s - t_i) - (k_s - k_i))
    return total


def smallest_gap(confidence, target, correct):
    """Minimum of the set D_c of Theorem 1, for distinct values; none if the set is empty.

    Ranks count from 1 at the largest value. The right pixels hold some ranks under the confidence
    and some under the target; matched in order, each that moves has a neighbour in the direction of
    the move, and if that neighbour is a wrong pixel its distance in target belongs to the set.
    """
    size = len(correct)
    by_confidence = sorted(range(size), key=lambda index: -confidence[index])
    by_target = sorted(range(size), key=lambda index: -target[index])
    from_ranks = [rank for rank in range(size) if correct[by_confidence[rank]]]
    to_ranks = [rank for rank in range(size) if correct[by_target[rank]]]
    gaps = []
    for old, new in zip(from_ranks, to_ranks, strict=True):
        neighbour = new + (old > new) - (old < new)
        if not correct[by_target[neighbour]]:
            gaps.append(abs(target[by_target[new]] - target[by_target[neighbour]]))
    return min(gaps) if gaps else None
