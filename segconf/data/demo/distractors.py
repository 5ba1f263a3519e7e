"""What looks like lesion and is not: freckles, a neighbouring spot, ink of a surgical pen."""

import numpy as np

from segconf.data.demo.fields import (
    Canvas,
    FloatArray,
    Size,
    chance,
    colour,
    pixel_centres,
    sigmoid,
    smooth_noise,
    smooth_step,
)
from segconf.data.demo.lesion import draw_lobe
from segconf.data.demo.tissue import LESION_MELANIN

INK = colour(0.80, 1.05, 0.35)
CLEARLY_OUTSIDE = -6.0


def distractor_absorbance(
    generator: np.random.Generator, logit: FloatArray, *, ambiguous: bool
) -> FloatArray:
    """Absorbance (3, H, W) of the distractors; a neighbour is likelier beside ambiguous lesions.

    Args:
        generator: Source of all randomness.
        logit: (H, W) log-odds of the lesion membership, to keep out of its way.
        ambiguous: Whether the lesion is.
    """
    size = (logit.shape[0], logit.shape[1])
    absorbance = np.zeros((3, *size), dtype=np.float32)
    if chance(generator, 0.3):
        freckles = smooth_step(smooth_noise(generator, size, generator.uniform(9, 18)), 1.3, 3.6)
        absorbance += generator.uniform(0.15, 0.7) * freckles * LESION_MELANIN
    if chance(generator, 0.5 if ambiguous else 0.15):
        absorbance += _neighbour(generator, size, _place_outside(generator, logit))
    if chance(generator, 0.12):
        absorbance += _ink(generator, size, _place_outside(generator, logit))
    return absorbance * sigmoid(-logit)


def _neighbour(
    generator: np.random.Generator, size: Size, centre: tuple[float, float]
) -> FloatArray:
    """Absorbance (3, H, W) of a small benign spot."""
    radius = generator.uniform(0.03, 0.085)
    spot = draw_lobe(generator, centre, radius, 0.2 * radius, 0.12)
    texture = 1 + 0.2 * smooth_noise(generator, size, 30)
    strength = generator.uniform(0.15, 0.5)
    return strength * texture * sigmoid(spot.logit(*pixel_centres(size))) * LESION_MELANIN


def _ink(generator: np.random.Generator, size: Size, centre: tuple[float, float]) -> FloatArray:
    """Absorbance (3, H, W) of a few hatched strokes."""
    canvas = Canvas(size)
    slope = generator.uniform(0, np.pi)
    direction = np.array([np.cos(slope), np.sin(slope)])
    across = np.array([-direction[1], direction[0]])
    steps = np.linspace(-1, 1, 9)
    strokes = int(generator.integers(3, 10))
    for number in range(strokes):
        shift = across * 0.02 * (number - strokes / 2)
        middle = np.array(centre) + shift + generator.normal(0, 0.008, 2)
        bend = across * generator.normal(0, 0.015)
        reach = generator.uniform(0.04, 0.11)
        points = middle + steps[:, None] * direction * reach + (steps**2)[:, None] * bend
        canvas.tapered_curve(points, 0.005 * (1.1 - steps**2))
    grain = smooth_step(smooth_noise(generator, size, 90), -1.2, 0.9)
    return generator.uniform(0.45, 0.9) * canvas.coverage() * grain * INK


def _place_outside(generator: np.random.Generator, logit: FloatArray) -> tuple[float, float]:
    """Point clearly outside the lesion: of twelve random ones, the first that qualifies.

    When none qualifies (a lesion that fills the image), the one farthest outside.
    """
    height, width = logit.shape
    rows = generator.integers(height // 12, height - height // 12, 12)
    columns = generator.integers(width // 12, width - width // 12, 12)
    found = logit[rows, columns]  # (12,)
    outside = found < CLEARLY_OUTSIDE
    chosen = int(np.argmax(outside)) if outside.any() else int(np.argmin(found))
    return float(columns[chosen]) / height, float(rows[chosen]) / height
