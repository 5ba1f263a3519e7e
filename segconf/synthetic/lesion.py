"""The lesion as a formula: a membership field whose 0.5 contour is the mask.

A lesion is a smooth union of star-shaped lobes. For a point at angle ``a`` and distance ``d`` from
the centre of a lobe (in the lobe's rotated and stretched axes),
``logit = (radius(a) - d) / softness(a)``. The logits of the lobes are joined by log-sum-exp, and
``membership = 1 / (1 + exp(-logit))``. A small softness is a sharp border, a large one a fuzzy
border; the contour ``membership = 0.5``, that is ``logit = 0``, is known exactly in both cases.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segconf.synthetic.noise import FloatArray, chance, pixel_centres

# A table entry spans less than a tenth of a pixel on a border at 192 x 256.
ANGLES = 4096


MIN_AREA_FRACTION = 0.02


MAX_AREA_FRACTION = 0.60


AMBIGUOUS_FRACTION = 0.25


EDGE_FRACTION = 0.10


MEDIAN_AREA_FRACTION = 0.13


@dataclass(frozen=True, slots=True)
class Lobe:
    """One star-shaped part; lengths in units of the image height.

    The tables hold the values at the angles ``-pi + 2 pi k / ANGLES``, k = 0 .. ANGLES; an angle
    takes the entry nearest to it.
    """

    centre: tuple[float, float]
    rotation: float
    stretch: float
    radius: FloatArray  # (ANGLES + 1,)
    softness: FloatArray  # (ANGLES + 1,)

    def logit(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Signed distance to the border along the ray from the centre, in units of softness."""
        dx, dy = x - self.centre[0], y - self.centre[1]
        cosine, sine = math.cos(self.rotation), math.sin(self.rotation)
        along = (cosine * dx + sine * dy) / self.stretch
        across = (cosine * dy - sine * dx) * self.stretch
        angle = np.arctan2(across, along)
        entry = (angle * (ANGLES / (2 * math.pi)) + (ANGLES / 2 + 0.5)).astype(np.int32)
        distance = np.sqrt(along * along + across * across)
        return (self.radius.take(entry) - distance) / self.softness.take(entry)


@dataclass(frozen=True, slots=True)
class Lesion:
    """A union of lobes; ambiguous ones are painted faintly and have very fuzzy borders."""

    lobes: tuple[Lobe, ...]
    ambiguous: bool

    def logit(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Log-odds of the membership at the points (x, y), which broadcast."""
        joined = self.lobes[0].logit(x, y)
        for lobe in self.lobes[1:]:
            other = lobe.logit(x, y)
            joined = np.maximum(joined, other) + np.log1p(np.exp(-np.abs(joined - other)))
        return joined


def draw_lesion(generator: np.random.Generator, aspect: float) -> Lesion:
    """Draw a lesion for an image of height 1 and width ``aspect``.

    The area follows a log-normal law around 13% of the image, as in ISIC2017, cut to 2%-60%. One in
    ten is centred near the edge of the image, the others near its middle.
    """
    coarse = pixel_centres((48, round(48 * aspect)))
    while True:
        lesion = _draw_candidate(generator, aspect)
        fraction = float((lesion.logit(*coarse) >= 0).mean())
        # The margin covers the difference between the coarse grid and the final one.
        if 1.1 * MIN_AREA_FRACTION <= fraction <= 0.97 * MAX_AREA_FRACTION:
            return lesion


def draw_lobe(
    generator: np.random.Generator,
    centre: tuple[float, float],
    radius: float,
    softness: float,
    irregularity: float,
) -> Lobe:
    """Draw an irregular lobe of the given mean radius and median softness."""
    outline = radius * np.exp(irregularity * _periodic_noise(generator, highest=40, decay=1.3))
    # The border is sharp on one side and fuzzy on another, up to a factor of about four.
    blur = softness * np.exp(0.55 * _periodic_noise(generator, highest=4, decay=0.5))
    return Lobe(
        centre=centre,
        rotation=float(generator.uniform(0, np.pi)),
        stretch=float(np.exp(generator.uniform(0, 0.22))),
        radius=outline.astype(np.float32),
        # The middle of a lobe is surely lesion: at least four softnesses inside.
        softness=np.clip(blur, 0.003, 0.25 * outline).astype(np.float32),
    )


def _draw_candidate(generator: np.random.Generator, aspect: float) -> Lesion:
    ambiguous = chance(generator, AMBIGUOUS_FRACTION)
    fraction = MEDIAN_AREA_FRACTION * np.exp(0.9 * generator.standard_normal())
    lobe_count = int(generator.choice([1, 2, 3, 4], p=[0.45, 0.25, 0.2, 0.1]))
    radius = float(np.sqrt(fraction * aspect / np.pi)) / (1 + 0.12 * (lobe_count - 1))
    x, y = _draw_centre(generator, aspect)
    fuzziness = generator.uniform(0.10, 0.22) if ambiguous else generator.uniform(0.02, 0.12)
    irregularity = generator.uniform(0.06, 0.20)
    lobes = []
    for number in range(lobe_count):
        offset, angle = (0.75 * radius if number else 0.0), generator.uniform(0, 2 * np.pi)
        centre = (float(x + offset * np.cos(angle)), float(y + offset * np.sin(angle)))
        own_radius = radius * (generator.uniform(0.45, 0.85) if number else 1.0)
        softness = fuzziness * own_radius * (0.13 / own_radius) ** 0.4
        lobes.append(draw_lobe(generator, centre, own_radius, softness, irregularity))
    return Lesion(tuple(lobes), ambiguous)


def _draw_centre(generator: np.random.Generator, aspect: float) -> tuple[float, float]:
    if not chance(generator, EDGE_FRACTION):
        x = aspect * (0.5 + 0.07 * generator.standard_normal())
        return x, 0.5 + 0.07 * generator.standard_normal()
    along = generator.uniform(0.2, 0.8)
    depth = generator.uniform(0.0, 0.12)
    match int(generator.integers(4)):
        case 0:
            return aspect * along, depth
        case 1:
            return aspect * along, 1 - depth
        case 2:
            return depth, along
        case _:
            return aspect - depth, along


def _periodic_noise(
    generator: np.random.Generator, highest: int, decay: float
) -> NDArray[np.float64]:
    """Random periodic function of unit deviation at ANGLES + 1 angles, first and last equal.

    The harmonics 1 .. ``highest`` have amplitudes proportional to ``k ** -decay``.
    """
    order = np.arange(1, highest + 1)
    amplitude = order**-decay
    phase = generator.uniform(0, 2 * np.pi, size=highest)
    spectrum = np.zeros(ANGLES // 2 + 1, dtype=np.complex128)
    spectrum[1 : highest + 1] = amplitude * np.exp(1j * phase)
    wave = np.fft.irfft(spectrum, ANGLES)
    wave /= wave.std()
    return np.append(wave, wave[0])
