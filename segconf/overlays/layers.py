"""The scale of error rates and its colours, and the layers of an overlay."""

from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

LOW_COLOUR = (255, 234, 70)
"""Striped, wrong most often: the bright end of cividis."""


MIDDLE_COLOUR = (74, 163, 255)
"""Shaded, wrong less often."""


STEPS = (2, 4, 10, 20, 50, 100, 200, 500, 1000)
"""Error rates that can be shown: wrong more than 1 time in so many."""


SHADED_PAIRS = ((4, 10), (2, 4), (2, 2))
"""Steps of what is striped and of what is shaded, the usual pair first."""


@dataclass(frozen=True, slots=True)
class Contour:
    """A line that keeps a promise on average: it surrounds the pixels with a probability.

    Attributes:
        kind: outer or inner.
        class_index: class that the probability is about.
        alpha: the expected loss that is promised; see `words`.
        threshold: lowest probability of the pixels inside of the line.
    """

    kind: Literal["outer", "inner"]
    class_index: int
    alpha: float
    threshold: float

    def words(self) -> str:
        """The promise."""
        if self.kind == "outer":
            return f"the outer line misses at most {_percent(self.alpha)} of a lesion, on average"
        return f"at most {_percent(self.alpha)} inside the inner line is not lesion, on average"


@dataclass(frozen=True, slots=True)
class Step:
    """Pixels below this confidence are wrong more than 1 time in `times`."""

    times: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Scale:
    """Error rates at which pixels are shaded, the same for every image.

    Attributes:
        steps: by falling error rate, so by rising confidence.
        striped_times: pixels that are wrong more than 1 time in so many are striped.
        shaded_times: the same for shading without stripes; more times.
        classes: number of classes K; no confidence is lower than 1/K.
        measured: whether the error rates are those of validation images; else the confidence is
            taken at its word, and 1 - confidence is the error rate.
        contours: lines that keep a promise, where the model has any.
    """

    steps: tuple[Step, ...]
    striped_times: int
    shaded_times: int
    classes: int = 2
    measured: bool = True
    contours: tuple[Contour, ...] = ()

    def without_contours(self) -> "Scale":
        """The same scale for an image about which nothing is promised."""
        return replace(self, contours=())

    @property
    def striped(self) -> float:
        """Confidence below which pixels are striped."""
        return self.level(self.striped_times)

    @property
    def shaded(self) -> float:
        """Confidence below which pixels are shaded, striped or not."""
        return self.level(self.shaded_times)

    @property
    def lowest(self) -> float:
        """Confidence of a pixel about which nothing is known."""
        return 1 / self.classes

    def level(self, times: int) -> float:
        """Confidence below which pixels are wrong more than 1 time in so many."""
        return next(step.confidence for step in self.steps if step.times == times)

    def shading(self, times: int) -> "Scale":
        """The same scale with other pixels shaded, and those of the step before striped."""
        known = [step.times for step in self.steps]
        before = known[max(0, known.index(times) - 1)]
        return replace(self, striped_times=before, shaded_times=times)

    def colours(self, confidence: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Cividis of confidence (h, w), yellow at 1/K and dark blue at 1; (h, w, 3)."""
        fraction = (confidence - self.lowest) / (1 - self.lowest)
        index = np.rint((1 - fraction).clip(0, 1) * 255).astype(np.uint8)
        blue_first = cv2.applyColorMap(index, cv2.COLORMAP_CIVIDIS)  # (h, w, 3)
        return np.ascontiguousarray(blue_first[..., ::-1], np.uint8)

    def words(self) -> tuple[str, str]:
        """What stripes and shading mean, in words."""
        if self.measured:
            return (
                f"wrong more than 1 time in {self.striped_times}",
                f"wrong more than 1 time in {self.shaded_times}",
            )
        low, middle = _percent(self.striped), _percent(self.shaded)
        return f"confidence below {low}: please check", f"confidence {low} to {middle}"

    def source(self) -> str:
        """Where the words come from."""
        if self.measured:
            return "Shading: how often pixels of this confidence were wrong on validation images."
        return "Shading by confidence: how often it is wrong has not been measured."


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"


Pixels = NDArray[np.uint8]


Confidence = NDArray[np.float32]


_MIDDLE_OPACITY = 0.22


_GAP_OPACITY, _STRIPE_OPACITY = 0.2, 0.75


_HEAT_OPACITY = 0.62


_DARK, _LIGHT = (16, 16, 16), (255, 255, 255)


def line_width(side: int) -> int:
    """Width of the light line of a contour for a picture with that longest side."""
    return max(1, round(side / 640))


def draw_contour(picture: Pixels, mask: Pixels) -> None:
    """Outline every class in place: a light line on a wider dark one, visible on any skin."""
    outlines = [
        outline
        for value in range(1, int(mask.max(initial=0)) + 1)
        for outline in cv2.findContours(
            (mask == value).view(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE
        )[0]
    ]
    for colour, thickness in two_tones(line_width(max(mask.shape))):
        cv2.drawContours(picture, outlines, -1, colour, thickness, cv2.LINE_AA)


def draw_line(picture: Pixels, *, width: int) -> None:
    """A sample of the contour across the middle of the picture, in place."""
    middle = len(picture) // 2
    for colour, thickness in two_tones(width):
        cv2.line(picture, (0, middle), (picture.shape[1], middle), colour, thickness)


def two_tones(width: int) -> tuple[tuple[tuple[int, int, int], int], ...]:
    """Colour and thickness of the two strokes of a contour, from below to above."""
    return (_DARK, 2 * width + 1), (_LIGHT, width)


def draw_bands(picture: Pixels, confidence: Confidence, scale: Scale) -> None:
    """Tint the pixels that are wrong too often, in place; the worst of them with stripes."""
    low = confidence < scale.striped  # (h, w)
    middle = (confidence < scale.shaded) & ~low
    stripes = _stripes(low.shape)
    _tint(picture, middle, MIDDLE_COLOUR, _MIDDLE_OPACITY)
    _tint(picture, low & ~stripes, LOW_COLOUR, _GAP_OPACITY)
    _tint(picture, low & stripes, LOW_COLOUR, _STRIPE_OPACITY)


def draw_heat(picture: Pixels, confidence: Confidence, scale: Scale) -> None:
    """Lay the colours of the whole scale over the picture, in place."""
    heat = scale.colours(confidence)
    cv2.addWeighted(heat, _HEAT_OPACITY, picture, 1 - _HEAT_OPACITY, 0, dst=picture)


def _stripes(shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Diagonal stripes that tell the lower band from the upper one without colour."""
    width = line_width(max(shape))
    line = np.arange(shape[0] + shape[1] - 1) % (10 * width) < 3 * width
    return np.lib.stride_tricks.sliding_window_view(line, shape[1])  # row r starts r pixels later


def _tint(
    picture: Pixels, where: NDArray[np.bool_], colour: tuple[int, int, int], opacity: float
) -> None:
    """Blend a colour into some pixels in place, by a table of the 256 values of each channel."""
    values = np.arange(256)[:, None] * (1 - opacity) + opacity * np.array(colour)  # (256, 3)
    tinted = cv2.LUT(picture, np.rint(values).astype(np.uint8)[:, None])
    cv2.copyTo(tinted, where.view(np.uint8), picture)
