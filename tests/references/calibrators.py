"""Ensemble temperature scaling and vector scaling of one pixel; mean NLL of many."""

import math


def softmax(logits):
    """Probabilities of a list of logits."""
    largest = max(logits)
    powers = [math.exp(value - largest) for value in logits]
    return [power / sum(powers) for power in powers]


def ensemble(logits, temperature, weights):
    """Mixture of probabilities at a temperature, of plain ones and of equal ones."""
    calibrated = softmax([value / temperature for value in logits])
    plain = softmax(logits)
    first, second, third = weights
    return [
        first * one + second * two + third / len(logits)
        for one, two in zip(calibrated, plain, strict=True)
    ]


def vector(logits, scales, biases):
    """Probabilities with a scale and a bias of every class."""
    pairs = zip(logits, scales, biases, strict=True)
    return softmax([scale * value + bias for value, scale, bias in pairs])


def mean_nll(pixels, probabilities):
    """Mean of -log p of (logits, label), with probabilities as a function of the logits."""
    costs = [-math.log(probabilities(logits)[label]) for logits, label in pixels]
    return math.fsum(costs) / len(costs)
