"""An image as another archive would have kept it: smaller, resampled and compressed."""

import io
from dataclasses import dataclass

import numpy as np
import PIL.Image

from segconf.images.types import ByteArray, Size

QUALITIES = (50, 95)
"""JPEG qualities that occur in practice, both included."""
_FILTERS = (
    PIL.Image.Resampling.BOX,
    PIL.Image.Resampling.BILINEAR,
    PIL.Image.Resampling.BICUBIC,
    PIL.Image.Resampling.LANCZOS,
)
_RGB = 3


@dataclass(frozen=True, slots=True)
class Recompression:
    """How an archive keeps an image: its size, the filter of the resampling, the JPEG quality."""

    size: Size
    resampling: PIL.Image.Resampling
    quality: int

    @classmethod
    def draw(cls, size: Size, smallest: Size, generator: np.random.Generator) -> "Recompression":
        """One of the ways in which an image of a size can have been kept.

        Args:
            size: height and width of the image.
            smallest: it is shrunk to these at most; the factor is log-uniform.
            generator: makes the choice.
        """
        least = min(1.0, max(small / full for small, full in zip(smallest, size, strict=True)))
        factor = float(np.exp(generator.uniform(np.log(least), 0)))
        height, width = (max(1, round(side * factor)) for side in size)
        resampling = _FILTERS[generator.integers(len(_FILTERS))]
        return cls((height, width), resampling, int(generator.integers(*QUALITIES, endpoint=True)))

    def apply(self, pixels: ByteArray) -> ByteArray:
        """The pixels (C, H, W) of the image as (C, h, w) after all that.

        Other than three channels are compressed one by one.
        """
        if len(pixels) == _RGB:
            return self._picture(pixels.transpose(1, 2, 0)).transpose(2, 0, 1)
        return np.stack([self._picture(plane) for plane in pixels])

    def _picture(self, pixels: ByteArray) -> ByteArray:
        picture = PIL.Image.fromarray(np.ascontiguousarray(pixels))
        content = io.BytesIO()
        height, width = self.size
        picture.resize((width, height), self.resampling).save(content, "jpeg", quality=self.quality)
        with PIL.Image.open(content) as kept:
            return np.array(kept)
