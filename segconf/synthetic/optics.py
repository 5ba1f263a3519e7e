"""What lies between skin and camera: light, hair, ruler, gel bubbles and the dermatoscope's rim."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from segconf.synthetic.lesion import draw_lesion
from segconf.synthetic.noise import (
    Canvas,
    FloatArray,
    Size,
    chance,
    colour,
    pixel_centres,
    smooth_step,
)
from segconf.synthetic.skin import (
    BARE_SKIN,
    distractor_absorbance,
    lesion_absorbance,
    skin_absorbance,
    wandering_border,
)

DARK_HAIR = colour(0.16, 0.11, 0.09)


LIGHT_HAIR = colour(0.80, 0.72, 0.60)


FULL_LIGHT = 0.9


def illumination(generator: np.random.Generator, size: Size) -> FloatArray:
    """Light (3, H, W): a slope, a fall-off towards the corners and a colour cast."""
    x, y = pixel_centres(size)
    aspect = size[1] / size[0]
    across, down = x / aspect - 0.5, y - 0.5
    slope_across, slope_down = generator.normal(0, 0.08), generator.normal(0, 0.08)
    fall_off = generator.uniform(0.05, 0.45)
    light = 1 + (slope_across - fall_off * across) * across + (slope_down - fall_off * down) * down
    cast = generator.normal(0, 0.025, 3)
    if chance(generator, 0.15):
        cast += np.array([0.01, -0.08, -0.10])  # Warm lamps.
    elif chance(generator, 0.15):
        cast += np.array([-0.05, -0.01, 0.02])  # Cold light.
    red, green, blue = generator.uniform(0.85, 1.08) * (1 + cast)
    return light * colour(red, green, blue)


def add_hair(generator: np.random.Generator, image: FloatArray) -> FloatArray:
    """Lay curved, tapering hairs, dark or light, over the image in about half of the cases."""
    low, high = ((0, 1), (1, 9), (14, 40))[int(generator.choice(3, p=[0.5, 0.38, 0.12]))]
    count = int(generator.integers(low, high))
    if count == 0:
        return image
    size = (image.shape[1], image.shape[2])
    aspect = size[1] / size[0]
    canvas = Canvas(size)
    direction = generator.uniform(0, 2 * np.pi)
    thickness = generator.uniform(0.0018, 0.0036)
    steps = np.linspace(0, 1, 18)
    for _ in range(count):
        root = np.array([generator.uniform(0, aspect), generator.uniform(0, 1)])
        angle = direction + generator.normal(0, 0.5)
        length = generator.uniform(0.2, 1.1)
        bend = generator.normal(0, 0.7)
        heading = angle + bend * (steps - 0.5) + generator.normal(0, 0.25) * np.sin(3 * steps)
        stride = np.stack([np.cos(heading), np.sin(heading)], axis=1) * length / len(steps)
        widths = thickness * generator.uniform(0.5, 1.2) * (1 - 0.8 * steps**1.5)
        canvas.tapered_curve(root - 0.5 * stride.sum(axis=0) + np.cumsum(stride, axis=0), widths)
    light = chance(generator, 0.2)
    opacity = generator.uniform(0.35, 0.6) if light else generator.uniform(0.55, 0.9)
    cover = opacity * canvas.coverage()
    tint = LIGHT_HAIR if light else DARK_HAIR * generator.uniform(0.6, 2.2)
    return image + (tint - image) * cover


def add_ruler(generator: np.random.Generator, image: FloatArray) -> FloatArray:
    """Print a millimetre scale on the contact plate in a quarter of the cases."""
    if not chance(generator, 0.25):
        return image
    size = (image.shape[1], image.shape[2])
    aspect = size[1] / size[0]
    canvas = Canvas(size)
    tilt = generator.normal(0, 0.15) + (np.pi / 2 if chance(generator, 0.2) else 0.0)
    along = np.array([np.cos(tilt), np.sin(tilt)])
    across = np.array([along[1], -along[0]])
    vertical = abs(along[1]) > abs(along[0])
    centre = np.array([0.10, 0.5]) if vertical else np.array([aspect * 0.5, 0.90])
    centre = centre + generator.normal(0, 0.02, 2)
    marks = int(generator.integers(20, 31))
    spacing = generator.uniform(0.014, 0.022)
    ends = centre + np.array([[-1], [1]]) * along * spacing * marks / 2
    if chance(generator, 0.7):
        canvas.tapered_curve(ends, np.full(2, 0.0014))
    for mark in range(marks + 1):
        foot = ends[0] + along * spacing * mark
        height = 0.028 if mark % 10 == 0 else 0.020 if mark % 5 == 0 else 0.013
        canvas.tapered_curve(np.stack([foot, foot + across * height]), np.full(2, 0.0013))
    cover = generator.uniform(0.5, 0.9) * canvas.coverage()
    return image + (0.08 - image) * cover


def add_bubbles(generator: np.random.Generator, image: FloatArray) -> FloatArray:
    """Add gel bubbles in a fifth of the cases: faint dark rings with a bright reflection."""
    if not chance(generator, 0.2):
        return image
    size = (image.shape[1], image.shape[2])
    aspect = size[1] / size[0]
    rims, lights = Canvas(size), Canvas(size)
    lamp = generator.uniform(0, 360)
    home = np.array([generator.uniform(0, aspect), generator.uniform(0, 1)])
    for _ in range(int(generator.integers(2, 12))):
        x, y = home + generator.normal(0, 0.14, 2)
        radius = 0.007 + generator.gamma(1.5, 0.009)
        rims.ring((x, y), radius, 0.005)
        lights.arc((x, y), 0.8 * radius, 0.005, lamp - 55, lamp + 55)
        lights.arc((x, y), 0.85 * radius, 0.003, lamp + 150, lamp + 200)
    rim, glint = 0.22 * rims.coverage(), 0.7 * lights.coverage()
    image = image * (1 - rim)
    headroom: FloatArray = 1 - np.minimum(image, 1)
    return image + headroom * glint


def add_vignette(
    generator: np.random.Generator, image: FloatArray, logit: FloatArray
) -> FloatArray:
    """Darken what lies outside the dermatoscope's round window, in up to 30% of the cases.

    Left out where the window would cut into the lesion: a mask never lies in the dark.
    """
    if not chance(generator, 0.3):
        return image
    height, width = logit.shape
    x, y = pixel_centres((height, width))
    across, down = generator.normal(0, 0.03), generator.normal(0, 0.03)
    distance = np.hypot(x - width / height / 2 - across, y - 0.5 - down)  # (H, W)
    radius = generator.uniform(0.48, 0.62) * width / height
    edge = generator.uniform(0.012, 0.09)
    window = smooth_step(distance, radius + edge, radius - edge)
    if bool((logit[window < FULL_LIGHT] >= 0).any()):
        return image
    rim = generator.uniform(0.02, 0.10)
    return rim + (image - rim) * window


SMALLEST_SIDE = 32


def generate_case(
    seed: int, index: int, size: Size = (192, 256)
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Image (H, W, 3) and mask (H, W) of case number ``index`` of the data set ``seed``.

    Depends on these arguments only, so a case is the same in a data set of any length. The mask
    holds the pixels whose centre has a lesion membership >= 0.5, as ``segconf.synthetic.lesion``
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
