"""Pictures decoded and resized once, into memory-mapped uint8 arrays beside the data set.

The name of an array holds a fingerprint of the files it was made from, so a changed, added or
removed file leads to another array. An array gets its name only when it is complete: what an
interrupted or a second, simultaneous preparation leaves behind is never taken for one.
"""

import hashlib
import json
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segconf.data.cases import Case, raise_problems
from segconf.errors import DataError
from segconf.images import DEFAULT_MAX_PIXELS, read_header, read_image, read_mask

FORMAT = 1
"""Part of every fingerprint: raise it when the same files would give other pixels."""
LEFTOVER_AGE = 24 * 3600

Progress = Callable[[str, int, int], None]
"""Called with what is being prepared, how many are done, and how many there are."""
Pixels = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Grid:
    """How files become pixels: everything beside the files that decides the content."""

    size: tuple[int, int]
    channels: int = 3
    classes: int = 2
    ignore_255: bool = False
    intensity_window: tuple[float, float] | None = None
    max_pixels: int = DEFAULT_MAX_PIXELS


def cache_folder(root: Path) -> Path:
    """Folder for the arrays of a data set.

    Below SEGCONF_CACHE when that is set; else beside the images; else, where that folder is
    read-only, below the user's cache folder.
    """
    own = f"{root.name}-{hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:8]}"
    if os.environ.get("SEGCONF_CACHE"):
        return Path(os.environ["SEGCONF_CACHE"]) / own
    # The mode bits, not os.access: a superuser should respect a read-only data set as well.
    if root.stat().st_mode & stat.S_IWUSR and os.access(root, os.W_OK):
        return root / ".segconf-cache"
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user) / "segconf" / own


class PixelCache:
    """Arrays of one data set on one grid."""

    def __init__(self, root: Path, grid: Grid, *, on_progress: Progress | None = None) -> None:
        """Remember where the data set lies; nothing is read or written yet."""
        self.root = root
        self.grid = grid
        self.folder = cache_folder(root)
        self._on_progress = on_progress

    def images(self, cases: Sequence[Case], *, label: str) -> Pixels:
        """Images of the cases: (N, H, W, C) uint8, memory-mapped, read-only."""
        grid = self.grid

        def decode(case: Case) -> Pixels:
            image = read_image(
                case.image_path,
                channels=grid.channels,
                size=grid.size,
                slice_index=case.slice_index,
                max_pixels=grid.max_pixels,
                window=grid.intensity_window,
            )
            return image.pixels.transpose(1, 2, 0)  # (H, W, C)

        settings = ["images", grid.size, grid.channels, grid.intensity_window]
        files = [(case.image_path,) for case in cases]
        shape = (len(cases), *grid.size, grid.channels)
        return self._open_or_make(f"{label}-images", shape, cases, decode, (settings, files))

    def masks(self, cases: Sequence[Case], *, label: str) -> Pixels:
        """Masks of the cases: (N, H, W) uint8 class indices, 255 = ignore."""
        grid = self.grid

        def decode(case: Case) -> Pixels:
            return read_mask(
                _mask_path(case),
                classes=grid.classes,
                size=grid.size,
                slice_index=case.slice_index,
                ignore_255=grid.ignore_255,
                expected_size=read_header(case.image_path).size,
            )

        settings = ["masks", grid.size, grid.classes, grid.ignore_255]
        files = [(case.image_path, _mask_path(case)) for case in cases]
        shape = (len(cases), *grid.size)
        return self._open_or_make(f"{label}-masks", shape, cases, decode, (settings, files))

    def _open_or_make(
        self,
        label: str,
        shape: tuple[int, ...],
        cases: Sequence[Case],
        decode: Callable[[Case], Pixels],
        content: tuple[object, Sequence[Sequence[Path]]],
    ) -> Pixels:
        height, width = self.grid.size
        name = f"{label}-{height}x{width}-{_fingerprint(cases, *content)}.npy"
        path = self.folder / name
        if (pixels := _open(path, shape)) is not None:
            return pixels
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(self.folder)
            with _unfinished(path) as temporary:
                pixels = np.lib.format.open_memmap(temporary, "w+", np.uint8, shape)
                self._decode_into(pixels, cases, decode, label)
                _to_disk(pixels, temporary)
        except OSError as error:
            raise DataError(
                f"{self.folder}: the cache of decoded images cannot be written "
                f"({error.strerror or error}). Free some space, or name another folder with "
                "SEGCONF_CACHE."
            ) from error
        return pixels

    def _decode_into(
        self,
        pixels: Pixels,
        cases: Sequence[Case],
        decode: Callable[[Case], Pixels],
        label: str,
    ) -> None:
        """Decode all cases in threads, since decoding releases the interpreter lock."""
        problems: dict[int, str] = {}

        def run(index: int) -> None:
            try:
                pixels[index] = decode(cases[index])
            except DataError as error:
                problems[index] = str(error)

        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            futures = [pool.submit(run, index) for index in range(len(cases))]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    if self._on_progress is not None:
                        self._on_progress(label.replace("-", " "), done, len(cases))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        raise_problems([problems[index] for index in sorted(problems)], self.root)


def _mask_path(case: Case) -> Path:
    if case.mask_path is None:
        raise ValueError(f"case {case.id} has no mask")
    return case.mask_path


def _fingerprint(cases: Sequence[Case], settings: object, files: Sequence[Sequence[Path]]) -> str:
    """Changes with the settings and with the name, size and time of any file."""
    stamps: list[object] = []
    for case, paths in zip(cases, files, strict=True):
        states = [path.stat() for path in paths if path.exists()]
        stamps.append([case.id, case.slice_index, [(s.st_size, s.st_mtime_ns) for s in states]])
    content = json.dumps([FORMAT, settings, stamps])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _open(path: Path, shape: tuple[int, ...]) -> Pixels | None:
    """The array of that name when it is there and whole."""
    if 0 in shape:
        return np.zeros(shape, np.uint8)
    try:
        pixels: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return pixels if pixels.shape == shape and pixels.dtype == np.uint8 else None


@contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """A temporary name beside the final one; renamed on success, removed otherwise."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _to_disk(pixels: Pixels, path: Path) -> None:
    """Wait for the disk: a power cut must not leave a named but hollow file."""
    if isinstance(pixels, np.memmap):
        pixels.flush()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _remove_leftovers(folder: Path) -> None:
    """Delete what killed preparations left behind; running ones are younger than a day."""
    for path in folder.glob("*.part"):
        if time.time() - path.stat().st_mtime > LEFTOVER_AGE:
            path.unlink(missing_ok=True)
