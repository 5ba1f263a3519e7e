"""Ranking loss and its targets, pixel by pixel."""


def pair_loss(confidence_i, confidence_j, target_i, target_j):
    if target_i == target_j:
        return 0.0
    if target_i > target_j:
        shortfall = (target_i - target_j) - (confidence_i - confidence_j)
    else:
        shortfall = (target_j - target_i) - (confidence_j - confidence_i)
    return max(0.0, shortfall)


def ranking_loss(confidence, target, partner):
    total = 0.0
    for i, j in enumerate(partner):
        total += pair_loss(confidence[i], confidence[j], target[i], target[j])
    return total / len(partner)


def all_pairs_ranking_loss(confidence, target):
    total = 0.0
    pairs = 0
    for i in range(len(target)):
        for j in range(i):
            total += pair_loss(confidence[i], confidence[j], target[i], target[j])
            pairs += 1
    return total / pairs


def normalize(target):
    lowest, highest = min(target), max(target)
    if lowest == highest:
        return [0.0 for _ in target]
    return [(value - lowest) / (highest - lowest) for value in target]
