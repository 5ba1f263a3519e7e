"""Skin and lesion as absorbance: pigments add up, light is multiplied by exp(-absorbance)."""

import math

import numpy as np

from segconf.synthetic.lesion import draw_lobe
from segconf.synthetic.noise import (
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

# Absorbance of red, green and blue per unit of pigment.
SKIN_MELANIN = colour(0.55, 0.75, 0.90)


LESION_MELANIN = colour(0.46, 0.82, 1.22)


DEEP_MELANIN = colour(1.05, 0.92, 0.72)


BLOOD = colour(0.05, 0.40, 0.32)


BARE_SKIN = colour(0.97, 0.90, 0.86)


def skin_absorbance(generator: np.random.Generator, size: Size) -> FloatArray:
    """Absorbance (3, H, W) of healthy skin, from very light to very dark."""
    tone = 0.02 + 1.5 * generator.beta(0.8, 1.7)
    redness = generator.uniform(0.02, 0.42)
    mottled = smooth_noise(generator, size, 6) + 0.8 * smooth_noise(generator, size, 17)
    pores = smooth_noise(generator, size, 60)
    # Skin furrows are the zero lines of a noise, wider apart than the pores.
    furrows = np.exp(-((smooth_noise(generator, size, 24) * 4) ** 2))
    melanin = tone * (1 + 0.03 * mottled + 0.02 * pores) + 0.03 * generator.random() * furrows
    blood = redness * (1 + 0.13 * mottled) + generator.uniform(0.01, 0.05) * pores
    return melanin * SKIN_MELANIN + np.maximum(blood, 0) * BLOOD


def lesion_absorbance(
    generator: np.random.Generator, logit: FloatArray, visible: FloatArray, *, ambiguous: bool
) -> FloatArray:
    """Absorbance (3, H, W) that the lesion adds to the skin under it.

    Args:
        generator: Source of all randomness.
        logit: (H, W) log-odds of the lesion membership.
        visible: (H, W) in [0, 1], the membership with the wandering border that is seen.
        ambiguous: Paint faintly.
    """
    size = (logit.shape[0], logit.shape[1])
    strength, deep, blood = _draw_strengths(generator, ambiguous=ambiguous)
    inside = smooth_step(logit, 0.5, 4.0)  # (H, W)
    patches = smooth_noise(generator, size, 8)
    pigment = 1 + 0.2 * patches + 0.1 * smooth_noise(generator, size, 40)
    pigment += _structures(generator, size)
    pigment += generator.uniform(0.0, 0.45) * inside
    core = smooth_step(smooth_noise(generator, size, 5) + 0.5 * patches, -1.0, 2.2) * inside
    if chance(generator, 0.3):
        # Regression: pale areas, well inside so that the contour stays visible.
        relief = smooth_noise(generator, size, 5) + 0.25 * smooth_noise(generator, size, 30)
        pale = smooth_step(relief, -0.2, 1.9) * smooth_step(logit, 1, 8)
        pigment *= 1 - generator.uniform(0.4, 0.75) * pale
        core *= 1 - pale
    # Light, not pigment, is halfway between skin and lesion where the membership is one half:
    # exp(-strength * amount) = 1 - visible * (1 - exp(-strength)).
    amount: FloatArray = -np.log1p(visible * math.expm1(-strength)) / strength
    melanin: FloatArray = strength * np.maximum(pigment, 0.08) * amount
    vessels: FloatArray = (
        blood * np.maximum(1 + 0.3 * smooth_noise(generator, size, 12), 0) * amount
    )
    return melanin * LESION_MELANIN + (deep * core) * DEEP_MELANIN + vessels * BLOOD


def wandering_border(generator: np.random.Generator, logit: FloatArray) -> FloatArray:
    """Membership (H, W) as it is seen: its border wanders around the true contour.

    The log-odds get noise of zero mean, so the visible border is displaced by less than about one
    softness and without bias: a little where it is sharp, more where it is fuzzy.
    """
    size = (logit.shape[0], logit.shape[1])
    noise = 0.7 * smooth_noise(generator, size, 26) + 0.35 * smooth_noise(generator, size, 70)
    return sigmoid(logit + noise)


def _draw_strengths(
    generator: np.random.Generator, *, ambiguous: bool
) -> tuple[float, float, float]:
    """Amounts of shallow melanin (brown), deep melanin (blue-grey) and blood of a lesion."""
    strength = generator.uniform(0.22, 0.40) if ambiguous else generator.uniform(0.5, 1.3)
    deep = strength * (0.0, 0.3, 0.9)[int(generator.choice(3, p=[0.4, 0.35, 0.25]))]
    blood = strength * generator.uniform(0.0, 0.45)
    if not ambiguous and chance(generator, 0.12):
        # A pink lesion with little pigment.
        return 0.45 * strength, 0.2 * deep, 0.9 * strength
    return strength, deep, blood


def _structures(generator: np.random.Generator, size: Size) -> FloatArray:
    """Relative extra pigment (H, W): a network, globules, or neither."""
    kind = generator.choice(["network", "globules", "none"], p=[0.45, 0.3, 0.25])
    if kind == "none":
        return np.zeros(size, dtype=np.float32)
    amount: FloatArray = generator.uniform(0.2, 0.5) * smooth_step(
        smooth_noise(generator, size, 5), -1.2, 0.8
    )
    if kind == "network":
        mesh = smooth_noise(generator, size, generator.uniform(28, 42))
        lines: FloatArray = np.exp(-((mesh * 2.5) ** 2))
        return amount * (lines - 0.4)
    spots = smooth_step(smooth_noise(generator, size, generator.uniform(30, 45)), 0.6, 1.8)
    return 1.5 * amount * (spots - 0.15)


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
