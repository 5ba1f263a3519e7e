"""The scale of confidence and its colours, and the layers of an overlay."""

from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

LOW_COLOUR = (255, 234, 70)
"""Under the referral threshold: the bright end of cividis."""


MIDDLE_COLOUR = (74, 163, 255)
"""Between the two levels."""


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
class Scale:
    """Levels at which low confidence is shown, the same for every image.

    Attributes:
        threshold: the referral threshold.
        upper: the second level, above it.
        right_below: fraction of validation pixels under the threshold that were right, if measured.
        classes: number of classes K; no confidence is lower than 1/K.
        contours: lines that keep a promise, where the model has any.
    """

    threshold: float
    upper: float
    right_below: float | None = None
    classes: int = 2
    contours: tuple[Contour, ...] = ()

    def without_contours(self) -> "Scale":
        """The same scale for an image about which nothing is promised."""
        return replace(self, contours=())

    @property
    def lowest(self) -> float:
        """Confidence of a pixel about which nothing is known."""
        return 1 / self.classes

    def colours(self, confidence: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Cividis of confidence (h, w), yellow at 1/K and dark blue at 1; (h, w, 3)."""
        fraction = (confidence - self.lowest) / (1 - self.lowest)
        index = np.rint((1 - fraction).clip(0, 1) * 255).astype(np.uint8)
        blue_first = cv2.applyColorMap(index, cv2.COLORMAP_CIVIDIS)  # (h, w, 3)
        return np.ascontiguousarray(blue_first[..., ::-1], np.uint8)

    def words(self) -> tuple[str, str]:
        """What the two bands mean, in words."""
        low = f"confidence below {_percent(self.threshold)}: please check"
        if self.right_below is not None:
            low = (
                "pixels shown here were right "
                f"{_percent(self.right_below)} of the time on validation images"
            )
        return low, f"confidence {_percent(self.threshold)} to {_percent(self.upper)}"


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
    """Tint pixels under the two levels in place; under the threshold with stripes."""
    low = confidence < scale.threshold  # (h, w)
    middle = (confidence < scale.upper) & ~low
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
