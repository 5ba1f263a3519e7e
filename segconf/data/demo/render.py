"""One synthetic case: draw a lesion, put it into skin, photograph it."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from segconf.data.demo.distractors import distractor_absorbance
from segconf.data.demo.fields import FloatArray, Size, pixel_centres
from segconf.data.demo.lesion import draw_lesion
from segconf.data.demo.optics import (
    add_bubbles,
    add_hair,
    add_ruler,
    add_vignette,
    illumination,
)
from segconf.data.demo.tissue import (
    BARE_SKIN,
    lesion_absorbance,
    skin_absorbance,
    wandering_border,
)

SMALLEST_SIDE = 32


def generate_case(
    seed: int, index: int, size: Size = (192, 256)
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Image (H, W, 3) and mask (H, W) of case number ``index`` of the data set ``seed``.

    Depends on these arguments only, so a case is the same in a data set of any length. The mask
    holds the pixels whose centre has a lesion membership >= 0.5, as ``segconf.data.demo.lesion``
    defines it.
    """
    if min(seed, index) < 0:
        raise ValueError(f"seed {seed} and index {index} must not be negative")
    if min(size) < SMALLEST_SIDE:
        raise ValueError(f"size {size} is too small, each side needs {SMALLEST_SIDE} pixels")
    generator = np.random.default_rng([seed, index])
    height, width = size
    lesion = draw_lesion(generator, width / height)
    logit = lesion.logit(*pixel_centres(size))  # (H, W)
    visible = wandering_border(generator, logit)  # (H, W)
    absorbance = skin_absorbance(generator, size)  # (3, H, W)
    absorbance += lesion_absorbance(generator, logit, visible, ambiguous=lesion.ambiguous)
    absorbance += distractor_absorbance(generator, logit, ambiguous=lesion.ambiguous)
    image: FloatArray = BARE_SKIN * np.exp(-absorbance) * illumination(generator, size)
    image = add_hair(generator, image)
    image = add_ruler(generator, image)
    image = add_bubbles(generator, image)
    image = add_vignette(generator, image, logit)
    return _photograph(generator, image), logit >= 0


def _photograph(generator: np.random.Generator, image: FloatArray) -> NDArray[np.uint8]:
    """Sensor noise, quantisation to uint8 and a slight blur of the lens."""
    height, width = image.shape[1:]
    noise = generator.standard_normal((height, width), dtype=np.float32)
    exposed = 255 * image + (generator.uniform(2, 5) * noise + 0.5)
    levels = np.clip(exposed, 0, 255).astype(np.uint8)  # (3, H, W)
    pixels = np.ascontiguousarray(levels.transpose(1, 2, 0))  # (H, W, 3)
    blur = ImageFilter.BoxBlur(generator.uniform(0.2, 0.7) * height / 192)
    return np.asarray(Image.fromarray(pixels).filter(blur))
