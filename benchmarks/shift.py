"""Confidence at home and away: the test images of runs as other cameras would have seen them.

Each corruption has three strengths. Images are corrupted at the resolution of their files, then
brought to the grid of the network; masks stay. AURC and ECE are those of all pixels.

Run: python benchmarks/shift.py RUN [RUN ...] --data ISIC
"""

import argparse
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from segconf.images.resizing import slices_on_grid
from segconf.inference.model import Model, load_model
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.runs.run_cases import GridCases, masked_cases
from segconf.runs.run_folder import RunFolder

Pixels = NDArray[np.uint8]
"""(H, W, 3)."""
Corruption = Callable[[Pixels, int], Pixels]

CASTS = ((1.1, 1.0, 0.9), (1.2, 0.95, 0.8), (1.3, 0.9, 0.65))
BLURS = (0.01, 0.02, 0.04)
"""Standard deviation as a fraction of the width."""
EXPOSURES = ((1.2, 0.85), (1.4, 0.7), (1.7, 0.5))
"""Factors for images that come out too bright and too dark, in turns."""
QUALITIES = (40, 20, 8)


def colour_cast(image: Pixels, strength: int) -> Pixels:
    """Warm light: more red, less blue."""
    return _clipped(image * np.array(CASTS[strength]))


def blur(image: Pixels, strength: int) -> Pixels:
    """A lens out of focus."""
    return np.asarray(cv2.GaussianBlur(image, (0, 0), BLURS[strength] * image.shape[1]), np.uint8)


def exposure(image: Pixels, strength: int) -> Pixels:
    """Too bright or too dark, by the parity of the image's sum: half of the images each."""
    return _clipped(image * EXPOSURES[strength][int(image.sum()) % 2])


def jpeg(image: Pixels, strength: int) -> Pixels:
    """Saved with a low quality."""
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, "jpeg", quality=QUALITIES[strength])
    return np.asarray(PIL.Image.open(buffer))


CORRUPTIONS: dict[str, Corruption] = {
    "colour cast": colour_cast,
    "blur": blur,
    "exposure": exposure,
    "JPEG": jpeg,
}


def _clipped(image: NDArray[np.float64]) -> Pixels:
    return image.clip(0, 255).astype(np.uint8)


def main() -> None:
    """Print a row for every run and kind of images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", default="test", choices=("test", "val"))
    options = parser.parse_args()
    print("| run | images | mIoU | AURC x10^3 | ECE x10^2 |")
    print("|---|---|---:|---:|---:|")
    for run in options.runs:
        model = load_model(run, device="cpu")
        show(run, "home", measure(model, run, options.data, options.split, None))
        away = []
        for name, corrupt in CORRUPTIONS.items():
            for strength in range(3):
                chosen = (corrupt, strength)
                away.append(measure(model, run, options.data, options.split, chosen))
                show(run, f"{name} {strength + 1}", away[-1])
        mean = {key: float(np.mean([one[key] for one in away])) for key in ("miou", "aurc", "ece")}
        show(run, "away, mean of 12", mean)


def measure(
    model: Model, run: Path, data: Path | None, split: str, chosen: tuple[Corruption, int] | None
) -> dict[str, float]:
    """Metrics of all pixels of a split, corrupted as chosen."""
    cases, root = masked_cases(RunFolder(run), split, data)
    grid = GridCases(cases, root, model.config, split, None)
    metrics = ConfidenceMetrics(num_classes=model.config.model.classes)
    number = 0
    for images, masks in grid.batches():
        pixels = images
        if chosen is not None:
            corrupt, strength = chosen
            changed = []
            for case in cases[number : number + len(images)]:
                image = model.read(case.image_path)
                seen = corrupt(np.ascontiguousarray(image.pixels.transpose(1, 2, 0)), strength)
                other = replace(image, pixels=np.ascontiguousarray(seen.transpose(2, 0, 1)))
                changed.append(slices_on_grid(other.pixels, model.config.data.size)[0])
            pixels = np.stack(changed)
        metrics.update(model.grid_logits(pixels), masks)
        number += len(images)
    return metrics.compute()


def show(run: Path, kind: str, values: dict[str, float]) -> None:
    """Print a row of the table."""
    numbers = f"{values['miou']:.3f} | {1000 * values['aurc']:.2f} | {100 * values['ece']:.2f}"
    print(f"| {run.name} | {kind} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
