"""Images per second of loading: from the cache, and by decoding the files every time.

Two questions on the same JPEG files, in one run:

- How fast is the preparation of the cache against a plain Pillow decode and resize, per core?
- How fast does a training epoch load its images from the cache (augmented and plain views, masks,
  normalisation) against an epoch that decodes images and masks from the files for every view?

Run: ``python benchmarks/data.py IMAGES_AND_MASKS_FOLDER``
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from segconf.config.schema import AugmentationConfig
from segconf.data.cache import PixelCache
from segconf.data.cases import Case, CaseSet
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.preprocessing import Preprocessing
from segconf.data.splits import split_cases
from segconf.data.training_set import Normalization, TrainingDataset, prepare_training
from segconf.data.transforms import augment, normalize, training_transform
from segconf.images.io import read_image

SIZE = (192, 256)
NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def plain_image(case: Case) -> np.ndarray:
    """Full decode and antialiased resize with Pillow."""
    with Image.open(case.image_path) as image:
        resized = image.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR)
    return np.asarray(resized)


def plain_mask(case: Case) -> np.ndarray:
    """Full decode and nearest-neighbour resize with Pillow."""
    with Image.open(case.mask_path) as mask:
        return np.asarray(mask.resize(SIZE[::-1], Image.Resampling.NEAREST)) // 255


def seconds(function: Callable[[], object], repeats: int) -> float:
    """Least processor time of a call on one core: what other programs disturb least."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def compare_preparation(cases: tuple[Case, ...], repeats: int) -> None:
    """Our decode against Pillow's, image by image on one core, and how far they differ."""
    ours = seconds(lambda: [read_image(c.image_path, size=SIZE) for c in cases], repeats)
    plain = seconds(lambda: [plain_image(c) for c in cases], repeats)
    differences = [
        np.abs(
            read_image(c.image_path, size=SIZE).pixels.transpose(1, 2, 0).astype(int)
            - plain_image(c).astype(int)
        )
        for c in cases
    ]
    print(f"preparation, one core: {len(cases) / ours:8.1f} images/s")
    print(f"plain Pillow, one core:{len(cases) / plain:8.1f} images/s")
    print(f"ratio: {plain / ours:.1f}x (wanted: at least 3x)")
    print(
        f"mean absolute difference {np.mean(differences):.3f} grey levels, worst image "
        f"{max(d.mean() for d in differences):.3f}, worst pixel {max(d.max() for d in differences)}"
    )


def compare_epochs(found: CaseSet, repeats: int) -> None:
    """An epoch of labeled images from the cache against one that decodes the files."""
    split = split_cases(found, labeled=None, labeled_list=None, seed=0)
    pixels = prepare_training(PixelCache(found.root, Preprocessing(SIZE)), split)
    dataset = TrainingDataset(
        pixels,
        steps=1,
        batch_labeled=len(pixels.images),
        augmentation=AugmentationConfig(),
        normalization=NORMALIZATION,
        seed=0,
    )
    transform = training_transform(SIZE, AugmentationConfig())

    def from_files() -> None:
        for number, case in enumerate(split.labeled):
            image, mask = plain_image(case), plain_mask(case)
            view, _ = augment(transform, image, mask, seed=number)
            for pixels in (view, image):
                normalize(pixels[None], mean=NORMALIZATION.mean, std=NORMALIZATION.std)

    cached = seconds(lambda: dataset[0], repeats * 10)
    decoded = seconds(from_files, repeats)
    count = len(split.labeled)
    print(f"epoch from the cache: {count / cached:9.1f} images/s")
    print(f"epoch from the files: {count / decoded:9.1f} images/s")
    print(f"ratio: {decoded / cached:.0f}x (wanted: at least 50x)")


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder with images/ and masks/")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["SEGCONF_CACHE"] = cache
        found = find_cases(str(arguments.folder), options=FindOptions(0, 0))
        print(f"{len(found.training)} images of {arguments.folder}, to {SIZE[0]} x {SIZE[1]}")
        compare_preparation(found.training, arguments.repeats)
        compare_epochs(found, arguments.repeats)


if __name__ == "__main__":
    main()
