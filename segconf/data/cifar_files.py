"""The binary files of CIFAR: records of one or two labels and 32 x 32 x 3 bytes, plane by plane."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segconf.data.archives import TAR, Archive
from segconf.data.cases import Case, CaseSet
from segconf.data.datasets.dataset import FindOptions
from segconf.data.labeled_parts import LabeledPart, labeled_set
from segconf.errors import DataError
from segconf.files import described, read_bytes, read_text

SIDE, CHANNELS = 32, 3
PIXELS = SIDE * SIDE * CHANNELS
SUFFIX = ".bin"
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True, slots=True)
class CifarLayout:
    """Where the files of a version lie, and what their records begin with.

    Attributes:
        folder: of the files.
        training: their names.
        test: the same.
        names: file with the names of the classes.
        labels: bytes before the pixels of a record; the last of them is the label.
    """

    folder: str
    training: tuple[str, ...]
    test: tuple[str, ...]
    names: str
    labels: int


def cifar_archive(version: int, md5: str, size_hint: int, folder: str) -> Archive:
    """The official archive of the binary version."""
    url = f"https://www.cs.toronto.edu/~kriz/cifar-{version}-binary.tar.gz"
    return Archive(folder, url, md5, size_hint, page=PAGE, suffix=TAR)


def find_cifar(name: str, root: Path, layout: CifarLayout, options: FindOptions) -> CaseSet:
    """Cases of the files: a record each. The test files are the test part."""
    folder = root / layout.folder
    if not folder.is_dir() and (root / layout.names).is_file():
        folder = root  # the folder of the files itself was given
    if not folder.is_dir():
        raise DataError(
            f"{root.absolute()}: no {name} here (looked for {folder}). Get it with:\n"
            f"  segconf data {name} --download --data {root}"
        )
    try:
        text = read_text(folder / layout.names)
    except OSError as error:
        raise DataError(
            f"{folder / layout.names}: cannot be read ({described(error)}). Remove {folder} and "
            f"get it again: segconf data {name} --download --data {root}"
        ) from None
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    parts = {
        "training": _part(folder, layout.training, layout, names),
        "test": _part(folder, layout.test, layout, names),
    }
    return replace(labeled_set(name, root, parts, options), size=(SIDE, SIDE))


def _part(
    folder: Path, files: tuple[str, ...], layout: CifarLayout, names: tuple[str, ...]
) -> LabeledPart:
    cases: list[Case] = []
    labels: dict[str, str] = {}
    problems: list[str] = []
    for file in files:
        path = folder / file
        try:
            found = read_records(path, layout.labels)[:, layout.labels - 1]  # (N,)
        except DataError as error:
            problems.append(str(error))
            continue
        stem = path.name.removesuffix(SUFFIX)
        for record, label in enumerate(found.tolist()):
            case = Case(f"{stem}/{record:05d}", path, record=record)
            cases.append(case)
            if label < len(names):
                labels[case.id] = names[label]
            else:
                problems.append(f"{path}: record {record}: the label {label} is no class")
    return LabeledPart(tuple(cases), labels, names, tuple(problems))


def read_records(path: Path, labels: int) -> NDArray[np.uint8]:
    """Records (N, labels + 3072) of a file.

    Raises:
        DataError: the file is not there, or is no whole number of records.
    """
    try:
        content = np.frombuffer(read_bytes(path), np.uint8)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({described(error)}). Get it again.") from None
    size = labels + PIXELS
    if len(content) == 0 or len(content) % size:
        raise DataError(
            f"{path}: {len(content)} bytes are no whole number of records of {size}. Get it again."
        )
    return content.reshape(-1, size)


def record_images(path: Path) -> NDArray[np.uint8]:
    """Images (N, 32, 32, 3) of all records of a file, with one label or two."""
    size = path.stat().st_size
    records = read_records(path, 1 if size % (1 + PIXELS) == 0 else 2)
    planes = records[:, -PIXELS:].reshape(-1, CHANNELS, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
