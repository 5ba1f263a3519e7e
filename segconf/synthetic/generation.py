"""The synthetic data set on disk, in the layout of the ISIC 2017 archives, complete or absent."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from segconf.errors import DataError
from segconf.files import read_text
from segconf.synthetic.noise import Size
from segconf.synthetic.optics import generate_case

# Raise it with every change of the generator that changes a pixel.
GENERATOR_VERSION = 1


PARAMETERS_FILE = "demo.json"


JPEG_QUALITY = 95


# Cases of different splits have different numbers, whatever the length of the splits.
CASES_PER_SPLIT = 1_000_000


MAX_THREADS = 4


@dataclass(frozen=True, slots=True)
class DemoParameters:
    """All that determines the files; kept beside them in ``demo.json``."""

    training: int = 240
    validation: int = 40
    test: int = 60
    size: Size = (192, 256)  # height, width
    seed: int = 0
    generator_version: int = field(default=GENERATOR_VERSION, init=False)

    def __post_init__(self) -> None:
        counts = (self.training, self.validation, self.test)
        if self.training < 1 or min(counts) < 0 or max(counts) > CASES_PER_SPLIT:
            raise ValueError(f"cannot make {counts} cases for training, validation and test")

    def as_json(self) -> str:
        """Text of ``demo.json``."""
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class _CaseFiles:
    index: int
    image: Path
    mask: Path


def write_demo_dataset(
    folder: Path,
    parameters: DemoParameters,
    *,
    on_progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the training, validation and test cases below ``folder``.

    The files are made in a hidden folder beside it that is renamed at the end, so ``folder`` is
    complete as soon as it has content. A complete folder of the same parameters is kept as it is.
    A split without cases has no folders.

    Args:
        folder: Place of the data set.
        parameters: Same parameters, same files.
        on_progress: Called with the number of finished cases and their total.

    Raises:
        DataError: The folder holds something else, or cannot be written.
    """
    folder = folder.absolute()
    if _is_complete(folder, parameters):
        return
    unfinished = folder.parent / f".{folder.name}-{uuid.uuid4().hex}"
    try:
        unfinished.mkdir(parents=True)
        _write_cases(unfinished, parameters, on_progress)
        (unfinished / PARAMETERS_FILE).write_text(parameters.as_json(), encoding="utf-8")
        _publish(unfinished, folder, parameters)
    except OSError as error:
        raise DataError(
            f"{folder}: the demo data cannot be written ({error.strerror or error}). "
            "Choose a folder on a disk with space and write permission."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _case_files(folder: Path, parameters: DemoParameters) -> Iterator[_CaseFiles]:
    splits = (
        ("Training", parameters.training),
        ("Validation", parameters.validation),
        ("Test_v2", parameters.test),
    )
    for number, (split, count) in enumerate(splits):
        images = folder / f"ISIC-2017_{split}_Data"
        masks = folder / f"ISIC-2017_{split}_Part1_GroundTruth"
        first = number * CASES_PER_SPLIT
        for index in range(first, first + count):
            name = f"ISIC_{index:07d}"
            yield _CaseFiles(index, images / f"{name}.jpg", masks / f"{name}_segmentation.png")


def _is_complete(folder: Path, parameters: DemoParameters) -> bool:
    """Whether the folder holds exactly this data set; False when it is absent or empty."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    way_out = "Delete it or choose another folder."
    record = folder / PARAMETERS_FILE
    if not record.is_file():
        raise DataError(f"{folder}: exists and is not demo data. {way_out}")
    if not _says(record, parameters):
        raise DataError(
            f"{record}: the demo data here was made with other parameters than "
            f"{json.dumps(asdict(parameters))}. {way_out}"
        )
    cases = _case_files(folder, parameters)
    missing = [path for case in cases for path in (case.image, case.mask) if not path.is_file()]
    if missing:
        raise DataError(
            f"{folder}: {len(missing)} files of the demo data are gone, the first is "
            f"{missing[0].name}. {way_out}"
        )
    return True


def _says(record: Path, parameters: DemoParameters) -> bool:
    try:
        return read_text(record) == parameters.as_json()
    except (OSError, ValueError):
        return False


def _write_cases(
    folder: Path, parameters: DemoParameters, on_progress: Callable[[int, int], None] | None
) -> None:
    cases = list(_case_files(folder, parameters))
    for parent in {path.parent for case in cases for path in (case.image, case.mask)}:
        parent.mkdir()

    def write(case: _CaseFiles) -> None:
        image, mask = generate_case(parameters.seed, case.index, parameters.size)
        Image.fromarray(image).save(case.image, quality=JPEG_QUALITY)
        Image.fromarray(mask.astype(np.uint8) * 255).save(case.mask)

    # Threads are enough: NumPy and Pillow let go of the interpreter lock for most of the work.
    pool = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1))
    try:
        for done, _ in enumerate(pool.map(write, cases), start=1):
            if on_progress is not None:
                on_progress(done, len(cases))
    finally:
        pool.shutdown(cancel_futures=True)


def _publish(unfinished: Path, folder: Path, parameters: DemoParameters) -> None:
    """Give the finished folder its name, unless another process was faster with the same data."""
    with suppress(OSError):
        folder.rmdir()  # An empty folder stands in the way of a rename on some systems.
    try:
        unfinished.rename(folder)
    except OSError:
        if not _is_complete(folder, parameters):
            raise


GAP = 4


BACKGROUND = 255


INNER_LINE = np.array([255, 255, 255], dtype=np.uint8)


OUTER_LINE = np.array([20, 20, 20], dtype=np.uint8)


def contact_sheet(
    images: Sequence[NDArray[np.uint8]], masks: Sequence[NDArray[np.bool_]], columns: int
) -> NDArray[np.uint8]:
    """Images (H, W, 3) in rows of ``columns``, four pixels apart, on white.

    The contour is one white pixel inside the mask and one dark pixel outside, so that it shows on
    any skin. A mask that touches the edge of the image has no line along that edge.

    Returns:
        (rows * (H + 4) + 4, columns * (W + 4) + 4, 3).
    """
    if not images or len(images) != len(masks) or columns < 1:
        raise ValueError(f"{len(images)} images, {len(masks)} masks, {columns} columns: no sheet")
    height, width = masks[0].shape
    rows = -(-len(images) // columns)
    shape = (rows * (height + GAP) + GAP, columns * (width + GAP) + GAP, 3)
    sheet = np.full(shape, BACKGROUND, dtype=np.uint8)
    for number, (image, mask) in enumerate(zip(images, masks, strict=True)):
        if image.shape != (height, width, 3) or mask.shape != (height, width):
            raise ValueError(f"image {number} is {image.shape}, mask {mask.shape}: sizes differ")
        top = GAP + (number // columns) * (height + GAP)
        left = GAP + (number % columns) * (width + GAP)
        sheet[top : top + height, left : left + width] = _outlined(image, mask)
    return sheet


def _outlined(image: NDArray[np.uint8], mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Copy of the image with the pixels on both sides of the mask's border painted."""
    padded = np.pad(mask, 1, mode="edge")
    neighbours = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    outlined = image.copy()
    outlined[mask & ~np.logical_and.reduce(neighbours)] = INNER_LINE
    outlined[~mask & np.logical_or.reduce(neighbours)] = OUTER_LINE
    return outlined
