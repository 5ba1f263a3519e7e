"""Time and size of the PNG files that a prediction writes, against pillow.

A confidence map of 1000 x 1500 pixels is made as `segconf predict` makes one: logits of a coarse
grid, enlarged bilinearly; a second one has noise on every pixel. Then its mask, and a picture in
colour. Every file is read back and compared.

Run: ``python benchmarks/png.py``
"""

import argparse
import io
import time
from collections.abc import Callable

import cv2
import numpy as np
import PIL.Image

from segconf.conventions import FULL_SCALE
from segconf.images.encoding import png_bytes

SIZE = (1000, 1500)
GRID = (192, 256)
NOISE = 40
"""Standard deviation of the noise, in 16-bit levels."""


def logit_map(rng: np.random.Generator) -> np.ndarray:
    """Difference of the logits of two classes (H, W): a wavy disc with texture, enlarged."""
    rows, columns = np.mgrid[-1 : 1 : GRID[0] * 1j, -1 : 1 : GRID[1] * 1j]
    radius = np.hypot(rows, columns) + 0.08 * np.sin(5 * np.arctan2(rows, columns))
    texture = cv2.GaussianBlur(rng.normal(size=GRID), (0, 0), 3)
    coarse = (12 * (0.6 - radius) + 4 * texture).astype(np.float32)
    return cv2.resize(coarse, SIZE[::-1], interpolation=cv2.INTER_LINEAR)


def samples() -> dict[str, np.ndarray]:
    """What is written: confidence levels, with and without noise, mask and colours."""
    rng = np.random.default_rng(0)
    logits = logit_map(rng)
    levels = FULL_SCALE / (1 + np.exp(-np.abs(logits)))
    noisy = (levels + rng.normal(scale=NOISE, size=SIZE)).clip(0, FULL_SCALE)
    shades = (logits - logits.min()) / np.ptp(logits) * 200 + rng.normal(scale=3, size=SIZE)
    colour = np.dstack([shades, shades * 0.8, shades * 0.7]).clip(0, 255)
    return {
        "confidence, 16 bits": np.rint(levels).astype(np.uint16),
        "confidence with noise": np.rint(noisy).astype(np.uint16),
        "mask, 8 bits": (logits > 0).astype(np.uint8),
        "colour, 3 x 8 bits": colour.astype(np.uint8),
    }


def pillow_bytes(pixels: np.ndarray, level: int) -> bytes:
    """The same file by pillow at a level of zlib; 6 is its default."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "png", compress_level=level)
    return buffer.getvalue()


def measured(encode: Callable[[], bytes], repeats: int) -> tuple[float, int]:
    """Least processor time of a call in milliseconds, and bytes of the file."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        content = encode()
        times.append(time.process_time() - start)
    return min(times) * 1e3, len(content)


def main() -> None:
    """Print a line for every kind of picture and every encoder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    for name, pixels in samples().items():
        with PIL.Image.open(io.BytesIO(png_bytes(pixels))) as picture:
            np.testing.assert_array_equal(np.asarray(picture), pixels)
        encoders: dict[str, Callable[[], bytes]] = {
            "segconf (OpenCV)": lambda pixels=pixels: png_bytes(pixels),
            "pillow, default": lambda pixels=pixels: pillow_bytes(pixels, 6),
            "pillow, level 1": lambda pixels=pixels: pillow_bytes(pixels, 1),
        }
        print(name)
        for encoder, encode in encoders.items():
            milliseconds, size = measured(encode, repeats)
            print(f"  {encoder:18}{milliseconds:8.1f} ms{size / 1e3:10.1f} kB")


if __name__ == "__main__":
    main()
