"""The fixed scale of confidence: two levels, and the colours between the lowest value and 1."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

LOW_COLOUR = (255, 234, 70)
"""Under the referral threshold: the bright end of cividis."""
MIDDLE_COLOUR = (74, 163, 255)
"""Between the two levels."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Levels at which low confidence is shown, the same for every image.

    Attributes:
        threshold: the referral threshold.
        upper: the second level, above it.
        right_below: share of validation pixels under the threshold that were right, if measured.
        classes: number of classes K; no confidence is lower than 1/K.
    """

    threshold: float
    upper: float
    right_below: float | None = None
    classes: int = 2

    @property
    def lowest(self) -> float:
        """Confidence of a pixel about which nothing is known."""
        return 1 / self.classes

    def colours(self, confidence: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Cividis of confidence (h, w), yellow at 1/K and dark blue at 1; (h, w, 3)."""
        share = (confidence - self.lowest) / (1 - self.lowest)
        index = np.rint((1 - share).clip(0, 1) * 255).astype(np.uint8)
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


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
