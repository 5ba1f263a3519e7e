"""Soft Dice of a batch, pixel by pixel."""

import math


def soft_dice_loss(logits, masks, ignore=255):
    """One minus the mean soft Dice of the classes that occur; nested lists in, a number out."""
    classes = len(logits[0])
    hits, said, pixels = [0.0] * classes, [0.0] * classes, [0] * classes
    for image, mask in zip(logits, masks, strict=True):
        for y, row in enumerate(mask):
            for x, label in enumerate(row):
                if label == ignore:
                    continue
                powers = [math.exp(image[k][y][x]) for k in range(classes)]
                for k in range(classes):
                    said[k] += powers[k] / sum(powers)
                hits[label] += powers[label] / sum(powers)
                pixels[label] += 1
    scores = [2 * hits[k] / (said[k] + pixels[k]) for k in range(classes) if pixels[k]]
    return 1 - sum(scores) / len(scores) if scores else 0.0
