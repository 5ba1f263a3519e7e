"""The synthetic data set on disk, in the layout of the ISIC 2017 archives, whole or not at all."""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from segconf.data.demo.fields import Size
from segconf.data.demo.render import generate_case
from segconf.errors import DataError

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
    if record.read_text(encoding="utf-8") != parameters.as_json():
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
