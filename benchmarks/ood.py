"""Out-of-distribution detection: false alarms on images of the same kind, and what is detected.

Own images are those of a split of the run's data set, and native files of validation images, whole
and reduced to several sizes and JPEG qualities. Others are electron microscopy, synthetic
dermoscopy, and own images that were blurred, inverted, covered with noise, given other channels or
no colours. The detector is that of the run (`segconf train --resume RUN` makes it anew).

Run: python benchmarks/ood.py RUN --data ISIC --native NATIVE/images --em EM/images [--split val]
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageFilter
from numpy.typing import NDArray

from segconf.data.cases import Case
from segconf.data.datasets.dataset import find_cases
from segconf.images.recompression import Recompression
from segconf.images.types import Image
from segconf.inference.model import Model, load_model
from segconf.ood.evaluation import detection_metrics
from segconf.runs.run_cases import masked_cases
from segconf.runs.run_folder import RunFolder
from segconf.synthetic.generation import JPEG_QUALITY, DemoParameters, generate_case

Pixels = NDArray[np.uint8]
"""(C, H, W)."""
Change = Callable[[Pixels, np.random.Generator], Pixels]

SIDES = (None, 1024, 512, 256)
"""Widths of native files; None is their own."""
QUALITIES = (60, 75, 85, 95)
BLUR = 0.015
"""Standard deviation as a fraction of the width: 4 of 256 pixels."""
NOISE = 40.0
"""Standard deviation in grey levels."""
SYNTHETIC_IMAGES = 60
LIMIT_NATIVE, LIMIT_OWN = 0.10, 0.08


def blurred(pixels: Pixels, _: np.random.Generator) -> Pixels:
    """Out of focus."""
    picture = PIL.Image.fromarray(pixels.transpose(1, 2, 0))
    radius = BLUR * picture.width
    return np.array(picture.filter(PIL.ImageFilter.GaussianBlur(radius))).transpose(2, 0, 1)


def noisy(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Gaussian noise on top."""
    return np.clip(pixels + generator.normal(0, NOISE, pixels.shape), 0, 255).astype(np.uint8)


def only_noise(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Nothing but noise."""
    return generator.integers(0, 256, pixels.shape).astype(np.uint8)


def grey(pixels: Pixels, _: np.random.Generator) -> Pixels:
    """Without colours."""
    luma = PIL.Image.fromarray(pixels.transpose(1, 2, 0)).convert("L")
    return np.array(luma)[None].repeat(3, axis=0)


CHANGES: dict[str, Change] = {
    "blurred": blurred,
    "inverted": lambda pixels, _: 255 - pixels,
    "noise added": noisy,
    "noise only": only_noise,
    "red and blue swapped": lambda pixels, _: pixels[::-1],
    "red and green swapped": lambda pixels, _: pixels[[1, 0, 2]],
    "grey": grey,
}
BARS = dict.fromkeys(CHANGES, 0.95) | {"electron microscopy": 0.99, "synthetic dermoscopy": 0.9}


def scores(model: Model, images: Iterable[Pixels]) -> NDArray[np.float64]:
    """Scores (N,) of pictures (C, H, W), as `predict` computes them."""
    found = []
    for pixels in images:
        inputs = model.network_input(Image(np.ascontiguousarray(pixels), Path("image.png")))
        found.append(model.grid_output(inputs.pixels, inputs.feature_pixels).ood_scores)
    return np.concatenate(found)


def native_views(model: Model, paths: Sequence[Path], side: int | None) -> Iterator[Pixels]:
    """Native files reduced to a width and saved again, in all qualities."""
    for path in paths:
        pixels = model.read(path).pixels
        _, height, width = pixels.shape
        size = (height, width) if side is None else (round(height * side / width), side)
        for quality in QUALITIES:
            yield Recompression(size, PIL.Image.Resampling.LANCZOS, quality).apply(pixels)


def changed(model: Model, paths: Sequence[Path], change: Change) -> Iterator[Pixels]:
    """Own images after a change."""
    generator = np.random.default_rng(0)
    return (change(model.read(path).pixels, generator) for path in paths)


def synthetic(seed: int) -> Iterator[Pixels]:
    """Images as the files of `segconf data demo` hold them, in which seed 0 is used."""
    size = DemoParameters().size
    saved = Recompression(size, PIL.Image.Resampling.LANCZOS, JPEG_QUALITY)
    cases = (generate_case(seed, number, size)[0] for number in range(SYNTHETIC_IMAGES))
    return (saved.apply(pixels.transpose(2, 0, 1)) for pixels in cases)


def own_cases(run: Path, split: str, data: Path | None) -> Sequence[Case]:
    """Images of a split of the run; those of ISIC 2017 for a pretrained model."""
    if run.is_dir():
        return masked_cases(RunFolder(run), split, data)[0]
    found = find_cases("isic", data)
    return found.test if split == "test" else found.validation


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="run folder, or name of a pretrained model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--native", type=Path, required=True)
    parser.add_argument("--em", type=Path, required=True)
    parser.add_argument("--split", choices=("test", "val"), default="test")
    parser.add_argument("--seed", type=int, default=0, help="of the synthetic images")
    options = parser.parse_args()
    started = time.perf_counter()
    model = load_model(options.run, device="cpu")
    if model.detector is None:
        raise SystemExit(f"no detector: segconf train --resume {options.run}")
    limit = model.detector.threshold
    paths = [case.image_path for case in own_cases(options.run, options.split, options.data)]
    own = scores(model, (model.read(path).pixels for path in paths))
    print(f"{'own images':32} flagged")
    print(f"{options.split + ' images':32} {(own > limit).mean():7.1%}  bar {LIMIT_OWN:.0%}")
    natives = sorted(options.native.iterdir())
    every = []
    for side in SIDES:
        found = scores(model, native_views(model, natives, side)).reshape(-1, len(QUALITIES))
        every.append(found)
        for quality, flagged in zip(QUALITIES, (found > limit).mean(axis=0), strict=True):
            name = f"native, {side or 'whole'}, quality {quality}"
            print(f"{name:32} {flagged:7.1%}")
    together = np.concatenate(every)
    print(f"{'native, all':32} {(together > limit).mean():7.1%}  bar {LIMIT_NATIVE:.0%}")
    microscopy = sorted(options.em.iterdir())
    others = {
        "electron microscopy": scores(model, (model.read(path).pixels for path in microscopy)),
        "synthetic dermoscopy": scores(model, synthetic(options.seed)),
        **{name: scores(model, changed(model, paths, change)) for name, change in CHANGES.items()},
    }
    print(f"\n{'other images':32}   AUROC   bar  flagged")
    for name, found in others.items():
        auroc = detection_metrics(own, found)["auroc"]
        print(f"{name:32} {auroc:7.3f}  {BARS[name]:.2f}  {(found > limit).mean():7.1%}")
    size = model.file.with_name("ood.safetensors").stat().st_size
    print(f"\nood.safetensors {size:,} bytes; {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
