"""Calibration losses, sample by sample: MMCE, and the targets of CaPE."""

import math


def mmce(confidence, correct, width=0.4):
    """Square root of the mean over all ordered pairs, a sample with itself included."""
    total = 0.0
    for r, c in zip(confidence, correct, strict=True):
        for other, right in zip(confidence, correct, strict=True):
            total += (c - r) * (right - other) * math.exp(-abs(r - other) / width)
    return math.sqrt(total) / len(confidence)


def cell(probability, cells=1000):
    """Number of the cell of a probability."""
    return min(int(probability * cells), cells - 1)


def centre(number, cells=1000):
    """Probability in the middle of a cell."""
    return (number + 0.5) / cells


def kernel_frequency(probability, samples, bandwidth):
    """Weighted mean of labels (0 or 1) of samples (probability, label), nearer ones more."""
    here = centre(cell(probability))
    weights = [math.exp(-((here - centre(cell(p))) ** 2) / (2 * bandwidth**2)) for p, _ in samples]
    hits = sum(weight * label for weight, (_, label) in zip(weights, samples, strict=True))
    return hits / sum(weights)


def bin_of(probability, samples, bins):
    """Bin with equally many samples, by the middle rank of those in the same cell."""
    below = sum(cell(p) < cell(probability) for p, _ in samples)
    same = sum(cell(p) == cell(probability) for p, _ in samples)
    return min(bins - 1, int(bins * (below + same / 2) / len(samples)))


def bin_frequency(probability, samples, bins):
    """Mean label of the samples in the same bin."""
    own = bin_of(probability, samples, bins)
    labels = [label for p, label in samples if bin_of(p, samples, bins) == own]
    return sum(labels) / len(labels)
