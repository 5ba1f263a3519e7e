"""Error rates: how often pixels of a given confidence are wrong, measured on validation images.

Fitted by `isotonic`, stored in `calibration.json`, shown by overlays and the review page.
"""

from dataclasses import dataclass

import numpy as np

from segconf.overlays.layers import SHADED_PAIRS, STEPS, Scale, Step

MOST_SHADED = 0.25
"""Fraction of the validation pixels that may be shaded; else only higher error rates are."""


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Pooled bins by rising confidence, their error rates by falling.

    Attributes:
        confidence: lower end of each bin; the first is 1/K.
        pixels: validation pixels in it.
        wrong: how many of them were wrong.
    """

    confidence: tuple[float, ...]
    pixels: tuple[int, ...]
    wrong: tuple[int, ...]

    def level(self, rate: float) -> float:
        """Confidence below which pixels are wrong more often than this; 1 where all are."""
        for lower, pixels, wrong in zip(self.confidence, self.pixels, self.wrong, strict=True):
            if wrong <= rate * pixels:
                return lower
        return 1.0

    def fraction_below(self, confidence: float) -> float:
        """Fraction of the validation pixels in the bins below a level."""
        pixels = np.array(self.pixels)
        return float(pixels[np.array(self.confidence) < confidence].sum() / pixels.sum())


def scale_of(rates: ErrorRates, classes: int) -> Scale:
    """The scale of overlays and page: where the error rate passes each of the steps.

    Shaded is what is wrong more than 1 time in 10, striped what is wrong more than 1 time in 4,
    unless that shades too much of the validation images: then it is 1 in 4 and 1 in 2, then 1 in 2.
    """
    level = {times: rates.level(1 / times) for times in STEPS}
    fitting = (pair for pair in SHADED_PAIRS if rates.fraction_below(level[pair[1]]) <= MOST_SHADED)
    striped, shaded = next(fitting, SHADED_PAIRS[-1])
    # A rate that even the surest pixels do not keep would shade every image completely.
    steps = [Step(times, level[times]) for times in STEPS if times <= shaded or level[times] < 1]
    return Scale(tuple(steps), striped, shaded, classes=classes, measured=True)


def supposed_scale(classes: int) -> Scale:
    """The scale of a model without a calibration: its confidence is taken at its word."""
    steps = tuple(Step(times, max(1 / classes, 1 - 1 / times)) for times in STEPS)
    striped, shaded = SHADED_PAIRS[0]
    return Scale(steps, striped, shaded, classes=classes, measured=False)
