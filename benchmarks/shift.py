"""Confidence at home and away: the test images of runs as other cameras would have seen them.

Each corruption has three strengths. Images are corrupted at the resolution of their files, then
brought to the grid of the network; masks stay. AURC and ECE are those of all pixels, by the
network's own confidence: a calibration of the run is left out.

With --keep, the numbers of each run are left beside its kept evaluation, for `table.py`. What is
there already is not measured again.

Run: python benchmarks/shift.py RUN [RUN ...] --data ISIC --keep benchmarks/results/runs/converged
"""

import argparse
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
import torch
from numpy.typing import NDArray

from segconf.files import make_folder, write_text
from segconf.images.resizing import slices_on_grid
from segconf.inference.model import Model
from segconf.inference.torch_model import TorchModel
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
SHOWN = ("miou", "aurc", "ece")


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
    parser.add_argument("--keep", type=Path, help="folder of kept evaluations, by name of the run")
    options = parser.parse_args()
    print("| run | images | mIoU | AURC x10^3 | ECE x10^2 |")
    print("|---|---|---:|---:|---:|")
    for run in options.runs:
        file = None if options.keep is None else options.keep / run.name / "shift.json"
        if file is not None and file.is_file():
            continue
        found = measure_all(run, options.data, options.split)
        away = [values for kind, values in found.items() if kind != "home"]
        mean = {key: float(np.mean([one[key] for one in away])) for key in SHOWN}
        show(run, f"away, mean of {len(away)}", mean)
        if file is not None:
            make_folder(file.parent)
            write_text(file, json.dumps({"split": options.split, "images": found}, indent=1) + "\n")


def measure_all(run: Path, data: Path | None, split: str) -> dict[str, dict[str, float]]:
    """mIoU, AURC and ECE at home and under every corruption, shown on the way."""
    model = TorchModel(run, device=torch.device("cpu"), calibrated=False)
    kinds: dict[str, tuple[Corruption, int] | None] = {"home": None}
    for name, corrupt in CORRUPTIONS.items():
        kinds |= {f"{name} {strength + 1}": (corrupt, strength) for strength in range(3)}
    found = {}
    for kind, chosen in kinds.items():
        values = measure(model, run, data, split, chosen)
        found[kind] = {key: values[key] for key in SHOWN}
        show(run, kind, found[kind])
    return found


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
