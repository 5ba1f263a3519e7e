"""The prediction for one image: mask, confidence, probabilities, overlay, files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segconf.confidence import FloatArray
from segconf.files import make_folder
from segconf.images.encoding import write_png
from segconf.images.image_format import case_name, format_of
from segconf.images.io import write_confidence, write_mask
from segconf.images.types import ByteArray, Image
from segconf.overlays.layers import Scale
from segconf.overlays.overlay import Style, overlay
from segconf.overlays.view import View

_VOLUME_AXES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """Mask, confidence and probabilities of one image, on the grid of that image.

    Attributes:
        image: the pixels that were predicted, (C, H, W), or (C, D, H, W) for a volume.
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
        """Picture (h, w, 3) of image, contour and low confidence; the middle slice of a volume.

        Conformal contours are drawn by `predict`, which knows whether an image is out of
        distribution.
        """
        pixels, mask, confidence = self.image.pixels, self.mask, self.confidence
        if pixels.ndim == _VOLUME_AXES:
            index = pixels.shape[1] // 2 if slice_index is None else slice_index
            pixels, mask, confidence = pixels[:, index], mask[index], confidence[index]
        scale, view = self.scale.without_contours(), View.of(self.image)
        return overlay(pixels, mask, confidence, style=style, scale=scale, view=view)

    def save(self, folder: Path | str) -> dict[str, Path]:
        """Write mask, confidence map and overlay into a folder, named like the image.

        Returns:
            The files: `mask` and `confidence` (in the format that maps of such an image have), and
            `overlay` (PNG).
        """
        folder = Path(folder)
        make_folder(folder)
        name = case_name(self.image.path)
        suffix = format_of(self.image.path).map_suffix
        files = {
            "mask": folder / f"{name}_mask{suffix}",
            "confidence": folder / f"{name}_confidence{suffix}",
            "overlay": folder / f"{name}_overlay.png",
        }
        write_mask(files["mask"], self.mask, like=self.image)
        write_confidence(files["confidence"], np.asarray(self.confidence), like=self.image)
        write_png(files["overlay"], self.overlay())
        return files
