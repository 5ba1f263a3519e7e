"""A trained network ready to be used: from an image to logits on the grid of that image."""

from dataclasses import dataclass

from segconf.confidence import FloatArray
from segconf.images.types import ByteArray, Image
from segconf.overlays.layers import Scale
from segconf.overlays.overlay import Style, overlay

_VOLUME_AXES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What a model says about one image, on the grid of that image.

    Attributes:
        image: the pixels that were judged, (C, H, W), or (C, D, H, W) for a volume.
        mask: class index of every pixel, (H, W) or (D, H, W).
        confidence: probability of that class, 0..1, high = good.
        probabilities: of all classes, (K, H, W) or (K, D, H, W).
        scale: levels at which low confidence is shown.
    """

    image: Image
    mask: ByteArray
    confidence: FloatArray
    probabilities: FloatArray
    scale: Scale

    def overlay(self, style: Style = "contour", *, slice_index: int | None = None) -> ByteArray:
        """Picture (h, w, 3) of image, contour and low confidence; the middle slice of a volume."""
        pixels, mask, confidence = self.image.pixels, self.mask, self.confidence
        if pixels.ndim == _VOLUME_AXES:
            index = pixels.shape[1] // 2 if slice_index is None else slice_index
            pixels, mask, confidence = pixels[:, index], mask[index], confidence[index]
        return overlay(pixels, mask, confidence, style=style, scale=self.scale)
