"""Scalar fields over the image: coordinates, smooth noise, steps and antialiased drawings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

# float32 when the program runs; the type stubs widen a product with a Python float.
FloatArray = NDArray[np.floating[Any]]


Size = tuple[int, int]


SUPERSAMPLING = 3


# Bicubic interpolation of independent unit normals has a standard deviation of about 0.75.
NOISE_GAIN = 1.33


def pixel_centres(size: Size) -> tuple[FloatArray, FloatArray]:
    """Coordinates x (1, W) and y (H, 1) of the pixel centres; the image height is 1."""
    height, width = size
    x = (np.arange(width, dtype=np.float32) + 0.5) / height
    y = (np.arange(height, dtype=np.float32) + 0.5) / height
    return x[None, :], y[:, None]


def smooth_noise(generator: np.random.Generator, size: Size, cells: float) -> FloatArray:
    """Noise (H, W) of zero mean and about unit deviation, with ``cells`` grid cells per height."""
    height, width = size
    box_height, box_width = cells, cells * width / height
    grid_shape = (int(np.ceil(box_height)) + 4, int(np.ceil(box_width)) + 4)
    grid = generator.standard_normal(grid_shape, dtype=np.float32)
    # The margin of two cells keeps the interpolation away from the edge of the grid.
    box = (2.0, 2.0, 2.0 + box_width, 2.0 + box_height)
    resized = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC, box=box)
    return np.asarray(resized, dtype=np.float32) * np.float32(NOISE_GAIN)


def colour(red: float, green: float, blue: float) -> FloatArray:
    """Three values as (3, 1, 1), to be multiplied with a field (H, W)."""
    return np.array([red, green, blue], dtype=np.float32)[:, None, None]


def sigmoid(logit: FloatArray) -> FloatArray:
    """Probability of the log-odds; saturates without overflow."""
    return 1 / (1 + np.exp(np.clip(-logit, -30, 30)))


def chance(generator: np.random.Generator, probability: float) -> bool:
    """Draw True with the given probability."""
    return bool(generator.random() < probability)


def smooth_step(values: FloatArray, start: float, end: float) -> FloatArray:
    """Cubic ramp from 0 at ``start`` to 1 at ``end``; a falling ramp when end < start."""
    ramp: FloatArray = np.clip((values - start) / (end - start), 0.0, 1.0)
    return ramp * ramp * (3.0 - 2.0 * ramp)


class Canvas:
    """Drawing surface in coordinates whose unit is the image height, read as coverage (H, W)."""

    def __init__(self, size: Size) -> None:
        height, width = size
        self.scale = height * SUPERSAMPLING
        self.surface = Image.new("L", (width * SUPERSAMPLING, self.scale))
        self.draw = ImageDraw.Draw(self.surface)

    def tapered_curve(self, points: NDArray[np.float64], half_widths: NDArray[np.float64]) -> None:
        """Fill the band around a polyline (P, 2) whose half width (P,) changes along it."""
        tangent = np.gradient(points, axis=0)  # (P, 2)
        length = np.maximum(np.hypot(tangent[:, 0], tangent[:, 1]), 1e-9)
        normal = np.stack([-tangent[:, 1], tangent[:, 0]], axis=1) / length[:, None]
        offset = normal * half_widths[:, None]
        outline = np.concatenate([points + offset, (points - offset)[::-1]]) * self.scale
        self.draw.polygon(outline.ravel().tolist(), fill=255)

    def ring(self, centre: tuple[float, float], radius: float, width: float) -> None:
        """Draw a circle line."""
        self.arc(centre, radius, width, 0.0, 360.0)

    def arc(
        self, centre: tuple[float, float], radius: float, width: float, start: float, end: float
    ) -> None:
        """Draw part of a circle line, angles in degrees."""
        x, y = centre
        box = tuple(self.scale * v for v in (x - radius, y - radius, x + radius, y + radius))
        self.draw.arc(box, start, end, fill=255, width=max(1, round(width * self.scale)))

    def coverage(self) -> FloatArray:
        """Share of each pixel that was drawn on, (H, W) in [0, 1]."""
        reduced = self.surface.reduce(SUPERSAMPLING)
        return np.asarray(reduced, dtype=np.float32) / np.float32(255.0)
