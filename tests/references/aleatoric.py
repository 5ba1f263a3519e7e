"""The sampled likelihood of noisy logits, one pixel at a time."""

import math

import numpy as np


def sampled_cross_entropy(mean, log_variance, masks, noise, ignore=255):
    """Loss of every pixel (B, H, W) of arrays (B, K, H, W), (B, H, W) and (S, B, K, H, W)."""
    draws, images, classes, height, width = noise.shape
    losses = np.zeros((images, height, width))
    for image, row, column in np.ndindex(images, height, width):
        label = int(masks[image, row, column])
        if label == ignore:
            continue
        likelihood = 0.0
        for draw in range(draws):
            powers = []
            for k in range(classes):
                deviation = math.sqrt(math.exp(log_variance[image, k, row, column]))
                logit = mean[image, k, row, column] + deviation * noise[draw, image, k, row, column]
                powers.append(math.exp(logit))
            likelihood += powers[label] / sum(powers) / draws
        losses[image, row, column] = -math.log(likelihood)
    return losses


def expected_probability(mean, deviation, points=20001):
    """Mean of sigmoid(x) for a normal x, by a sum over a fine grid."""
    x = np.linspace(-12, 12, points)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    values = density / (1 + np.exp(-(mean + deviation * x)))
    return float(values.sum() * (x[1] - x[0]))
