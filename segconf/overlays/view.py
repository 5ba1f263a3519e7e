"""How a slice is shown: the shape of its pixels, the sides of the patient, the longest side."""

from dataclasses import dataclass

import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageFont

from segconf.images.types import Image
from segconf.overlays.layers import Pixels

MAX_SIDE = 1600
"""Longest side of the image in an overlay; masks and confidence maps keep the native size."""

_MIN_SIDE = 512
_LIGHT, _DARK = (255, 255, 255), (16, 16, 16)


@dataclass(frozen=True, slots=True)
class View:
    """What a picture of a slice needs to know beside its pixels.

    Attributes:
        aspect: height of a pixel divided by its width.
        marks: letters at the left, right, top and bottom, such as R, L, A, P.
        max_side: longest side of the image on the screen.
    """

    aspect: float = 1.0
    marks: tuple[str, str, str, str] | None = None
    max_side: int = MAX_SIDE

    @classmethod
    def of(cls, image: Image) -> "View":
        """The view of the slices of an image; pictures have square pixels and no marks."""
        height, width = image.spacing[-2:] if image.spacing else (1.0, 1.0)
        marks = image.orientation.marks if image.orientation else None
        return cls(height / width, marks)

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width on the screen: at most `max_side`, small images in whole multiples."""
        tall, wide = height * max(1.0, self.aspect), width * max(1.0, 1 / self.aspect)
        longest = max(tall, wide)
        if longest > self.max_side:
            factor = self.max_side / longest
        else:
            factor = min(-(-_MIN_SIDE // longest), max(1, self.max_side // longest))
        return max(1, round(tall * factor)), max(1, round(wide * factor))

    def draw_marks(self, picture: Pixels) -> None:
        """Write the letters inside of the four edges, in place."""
        if self.marks is None:
            return
        height, width = picture.shape[:2]
        points = max(12, min(height, width) // 24)
        drawn = PIL.Image.fromarray(picture)
        draw = PIL.ImageDraw.Draw(drawn)
        font = PIL.ImageFont.load_default(points)
        gap = points // 3
        places = (
            (gap, height // 2, "lm"),
            (width - gap, height // 2, "rm"),
            (width // 2, gap, "mt"),
            (width // 2, height - gap, "mb"),
        )
        for letter, (x, y, anchor) in zip(self.marks, places, strict=True):
            width_of_line = max(1, points // 10)
            draw.text(
                (x, y), letter, _LIGHT, font, anchor, stroke_width=width_of_line, stroke_fill=_DARK
            )
        picture[:] = np.asarray(drawn)
