"""Storage of the history: working arrays, and committed generations on the disk.

A generation is one ``<name>-<epoch>.npy`` per array and a marker ``epoch-<epoch>.json``. The marker
is written last and removed first: arrays without a marker do not count. Files get their final name
only when their content is on the disk (temporary name, fsync, rename), and no committed file is
ever written to again, so that a crash at any moment loses only what was not committed.
"""

import json
import math
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from segconf.arrays import read_array
from segconf.errors import TrainingError
from segconf.files import (
    make_folder,
    read_bytes,
    remove_leftovers,
    replacing,
    sync_folder,
    write_bytes,
)


def zeros(shape: tuple[int, ...], dtype: DTypeLike, scratch: Path | None) -> NDArray[Any]:
    """An empty array, in memory or mapped to a file without a name in a folder."""
    if scratch is None:
        return np.zeros(shape, dtype)
    try:
        return _mapped_zeros(shape, dtype, scratch)
    except OSError as error:
        raise TrainingError(
            f"{scratch}: the history cannot be kept on the disk ({error.strerror or error}). Free "
            "some space, or keep it in memory: training.history_storage=memory."
        ) from error


def _mapped_zeros(shape: tuple[int, ...], dtype: DTypeLike, scratch: Path) -> NDArray[Any]:
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        # Without reserved space, a full disk would kill the process at some write much later.
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
        return np.asarray(np.memmap(file, dtype, mode="r+", shape=shape))


Array = NDArray[Any]
_EPOCH, _NAME = re.compile(r"\d{4,9}", re.ASCII), re.compile(r"[a-z_]+")


# A checkpoint is written after its generation. While that of epoch E is being written, those of E-1
# and E-2 are still on the disk, and E-2 is needed if E-1 turns out to be corrupt.
KEPT_GENERATIONS = 3


def committed_epochs(folder: Path) -> list[int]:
    """Epochs of the complete generations, in ascending order; none for a missing folder."""
    numbers = [path.stem.removeprefix("epoch-") for path in folder.glob("epoch-*.json")]
    return sorted(int(number) for number in numbers if _EPOCH.fullmatch(number))


def write_generation(
    folder: Path, epoch: int, arrays: Mapping[str, Array], facts: Mapping[str, Any]
) -> int:
    """Write one generation and drop those that no checkpoint can ask for any more.

    Generations of this epoch or later are removed first: they belong to a future that a resumed run
    is writing anew.

    Args:
        folder: created if missing.
        epoch: name of the generation.
        arrays: what to write, by name.
        facts: small values stored in the marker as JSON.

    Returns:
        Checksum of everything written, for ``read_generation``.
    """
    make_folder(folder)
    _remove(folder, {known for known in committed_epochs(folder) if known >= epoch})
    checksums = {}
    for name, array in arrays.items():
        with replacing(folder / f"{name}-{epoch:04d}.npy") as partial, partial.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        checksums[name] = _checksum(array)
    marker = json.dumps({"epoch": epoch, "checksums": checksums, "facts": dict(facts)}).encode()
    write_bytes(_marker(folder, epoch), marker)
    kept = committed_epochs(folder)[-KEPT_GENERATIONS:]
    _remove(folder, set(committed_epochs(folder)) - set(kept))
    _sweep(folder, set(kept))
    return zlib.crc32(marker)


def read_generation(
    folder: Path, epoch: int, *, checksum: int | None = None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Map the arrays of a generation read-only, check them, and load its facts.

    Args:
        folder: as given to ``write_generation``.
        epoch: name of the generation.
        checksum: what ``write_generation`` returned; None accepts any generation of this epoch.

    Raises:
        FileNotFoundError: no complete generation of this epoch.
        ValueError: the generation is damaged or not the one with this checksum.
    """
    path = _marker(folder, epoch)
    if not path.is_file():
        known = ", ".join(map(str, committed_epochs(folder))) or "none"
        raise FileNotFoundError(
            f"{folder}: no prediction history of epoch {epoch} (found: {known}). "
            "Resume from a checkpoint of one of these epochs, or train anew."
        )
    marker = read_bytes(path)
    if checksum is not None and zlib.crc32(marker) != checksum:
        raise ValueError(
            f"{path}: not the prediction history that was saved with the checkpoint. "
            "Put the history folder of this run back, or train anew."
        )
    way_out = "Resume from the checkpoint before, or train anew."
    try:
        content = json.loads(marker)
        checksums, facts = dict(content["checksums"]), dict(content["facts"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: the content is damaged. {way_out}") from error
    arrays: dict[str, Array] = {}
    for name, expected in checksums.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: {name!r} is not the name of an array. {way_out}")
        array_path = folder / f"{name}-{epoch:04d}.npy"
        try:
            arrays[name] = read_array(array_path, mapped=True)
        except ValueError as error:
            raise ValueError(f"{array_path}: {error}. {way_out}") from error
        if _checksum(arrays[name]) != expected:
            raise ValueError(f"{array_path}: the content is damaged (checksum differs). {way_out}")
    return arrays, facts


def _marker(folder: Path, epoch: int) -> Path:
    return folder / f"epoch-{epoch:04d}.json"


def _checksum(array: Array) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)


def _remove(folder: Path, epochs: set[int]) -> None:
    """Remove generations, markers first, so that no marker ever speaks of missing arrays."""
    for epoch in epochs:
        _marker(folder, epoch).unlink()
    if epochs:
        sync_folder(folder)
    for epoch in epochs:
        for path in folder.glob(f"*-{epoch:04d}.npy"):
            path.unlink()


def _sweep(folder: Path, kept: set[int]) -> None:
    """Remove what a crash left behind: partial files and arrays without a marker."""
    names = {f"{epoch:04d}" for epoch in kept}
    remove_leftovers(folder, age=0)
    for path in folder.glob("*-*.npy"):
        if path.stem.rpartition("-")[2] not in names:
            path.unlink()


def check_facts(folder: Path, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    """Refuse a generation whose numbers do not belong to its arrays, before memory is taken.

    Raises:
        ValueError: whatever is wrong first.
    """
    try:
        _check_facts(arrays, facts)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder}: the prediction history contradicts itself ({error}). Resume from the "
            "checkpoint before, or train anew."
        ) from error


def _check_facts(arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
    images, size = facts["images"], tuple(facts["size"])
    counts = [images, facts["epochs"], *size, *facts["records"], *facts["last_epoch"]]
    if any(type(count) is not int for count in [*counts, *facts["labeled"]]):
        raise TypeError("a count that is no whole number")
    if len(facts["records"]) != images or len(facts["last_epoch"]) != images:
        raise ValueError(f"{images} images, but counts of {len(facts['records'])}")
    if min(images, facts["epochs"], *size) < 0 or min(facts["records"], default=0) < 0:
        raise ValueError("a negative count")
    labeled = facts["labeled"]
    if len(set(labeled)) < len(labeled) or not set(labeled) <= set(range(images)):
        raise ValueError("labeled images that there are not")
    for name, array in arrays.items():
        if array.shape[-len(size) :] != size or len(array) not in (images, len(labeled)):
            raise ValueError(f"{name} is {array.shape} for {images} images of {size}")


def mismatch(folder: Path, names: Iterable[str]) -> str:
    """The message for a history that holds other arrays than those expected."""
    found = ", ".join(sorted(names))
    return f"{folder}: the history of another method or version (it holds {found}). Train anew."
