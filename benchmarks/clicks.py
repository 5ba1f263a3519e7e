"""Does confidence save clicks? A simulated reader who corrects uncertain regions, one per click.

A region is a connected set of pixels below the risk threshold of the run (fitted on validation
images). A click on one gives it the true labels. The regions of an image are offered in four
orders: by the wrong pixels to expect in them (the sum of 1 - confidence), by their mean confidence,
by their size, and at random. Printed is the mean Dice after n clicks per image, and what a click
gained, with 95% intervals over groups of images.

Run: ``python benchmarks/clicks.py RUN --data ISIC --clicks 1 2 3 5``
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import label, sum_labels

from segconf.confidence import probabilities_of
from segconf.conventions import IGNORE
from segconf.inference.torch_model import TorchModel
from segconf.metrics.bootstrap import draw_units, mean_interval
from segconf.metrics.overlap import dice
from segconf.runs.run_cases import BATCH, GridCases, masked_cases
from segconf.runs.run_folder import RunFolder

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Picture:
    """A predicted image: class, confidence and truth of every pixel (h, w)."""

    prediction: NDArray[np.uint8]
    confidence: NDArray[np.float32]
    truth: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Regions:
    """Uncertain regions: their numbers from 1 (h, w), pixels (R,) and summed doubt (R,)."""

    numbers: NDArray[np.int32]
    pixels: Floats
    doubt: Floats


ORDERS: dict[str, Callable[[Regions, np.random.Generator], Floats]] = {
    "confidence (expected wrong pixels)": lambda regions, _: -regions.doubt,
    "mean confidence": lambda regions, _: -regions.doubt / regions.pixels,
    "size": lambda regions, _: -regions.pixels,
    "random": lambda regions, generator: generator.random(len(regions.pixels)),
}
"""Ranks of the regions, the lowest is offered first."""


def pictures(run: Path, split: str, data: Path | None) -> tuple[list[Picture], list[str], float]:
    """The predicted images of a split, their groups, and the threshold of the run."""
    cases, root = masked_cases(RunFolder(run), split, data)
    model = TorchModel(run, device=torch.device("cpu"), batch_size=BATCH)
    stored = model.calibration.threshold
    if stored is None:
        raise SystemExit(f"{run}: no risk threshold yet. Fit one with: segconf calibrate {run}")
    found: list[Picture] = []
    for images, masks in GridCases(cases, root, model.config, split).batches():
        for logits, mask in zip(model.grid_logits(images), masks, strict=True):
            probabilities = probabilities_of(logits)
            prediction = probabilities.argmax(axis=0).astype(np.uint8)
            found.append(Picture(prediction, probabilities.max(axis=0), mask))
    return found, [case.group for case in cases], stored.confidence


def uncertain_regions(picture: Picture, threshold: float) -> Regions:
    """Connected pixels below the threshold."""
    numbers, count = label(picture.confidence < threshold)
    index = np.arange(1, count + 1)
    pixels = sum_labels(np.ones_like(numbers), numbers, index)
    doubt = sum_labels(1 - picture.confidence, numbers, index)
    return Regions(numbers, np.asarray(pixels, np.float64), np.asarray(doubt, np.float64))


def dice_along(picture: Picture, regions: Regions, rank: Floats, most: int) -> Iterator[float]:
    """Dice before any click, after one, ..., after `most`; images with fewer regions stay."""
    corrected = picture.prediction.copy()
    order = np.argsort(rank, kind="stable") + 1
    for click in range(most + 1):
        if 0 < click <= len(order):
            inside = regions.numbers == order[click - 1]
            corrected[inside] = picture.truth[inside]
        valid = picture.truth != IGNORE
        yield dice((corrected > 0) & valid, (picture.truth > 0) & valid)


def measure(found: list[Picture], threshold: float, most: int, seeds: int) -> dict[str, Floats]:
    """(I, most + 1) Dice of every image along the clicks, by order; random ones averaged."""
    all_regions = [uncertain_regions(picture, threshold) for picture in found]
    curves: dict[str, Floats] = {}
    for name, rank in ORDERS.items():
        repeats = []
        for seed in range(seeds if name == "random" else 1):
            generator = np.random.default_rng(seed)
            repeats.append(
                [
                    list(dice_along(picture, regions, rank(regions, generator), most))
                    for picture, regions in zip(found, all_regions, strict=True)
                ]
            )
        curves[name] = np.mean(repeats, axis=0)
    counts = [len(regions.pixels) for regions in all_regions]
    print(f"{len(found)} images, {np.mean(counts):.1f} regions per image (median "
          f"{np.median(counts):.0f}), threshold {threshold:.4f}.\n")  # fmt: skip
    return curves


def show(curves: dict[str, Floats], groups: list[str], clicks: list[int]) -> None:
    """Print the table."""
    weights = draw_units(groups, torch.Generator().manual_seed(0))  # (R, I)
    heads = [f"{n} click{'s' if n > 1 else ''}" for n in clicks]
    print("| regions offered by | no click | " + " | ".join(heads) + " |")
    print("|---|---:|" + "---:|" * len(heads))
    for name, dices in curves.items():
        cells = []
        for n in clicks:
            gain = (dices[:, n] - dices[:, 0]) / n  # (I,)
            low, high = mean_interval(gain, weights)
            cells.append(
                f"{np.nanmean(dices[:, n]):.3f}, {np.nanmean(gain):+.4f} a click "
                f"({low:+.4f} to {high:+.4f})"
            )
        print(f"| {name} | {np.nanmean(dices[:, 0]):.3f} | " + " | ".join(cells) + " |")
    first, last = next(iter(curves)), "random"
    print(f"\nDice by {first} minus {last}, 95% interval:")
    for n in clicks:
        low, high = mean_interval(curves[first][:, n] - curves[last][:, n], weights)
        difference = np.nanmean(curves[first][:, n] - curves[last][:, n])
        print(f"- {n}: {difference:+.4f} ({low:+.4f} to {high:+.4f})")


def main() -> None:
    """Measure a run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--split", choices=("test", "val"), default="test")
    parser.add_argument("--clicks", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--seeds", type=int, default=20, help="repetitions of the random order")
    options = parser.parse_args()
    found, groups, threshold = pictures(options.run, options.split, options.data)
    curves = measure(found, threshold, max(options.clicks), options.seeds)
    show(curves, groups, options.clicks)


if __name__ == "__main__":
    main()
