"""Pictures decoded and resized once, into memory-mapped uint8 arrays beside the data set.

The name of an array holds a fingerprint of the files it was made from, so a changed, added or
removed file leads to another array. An array gets its name only when it is complete: what an
interrupted or a second, simultaneous preparation leaves behind is never taken for one.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segconf.data.cases import Case, raise_problems
from segconf.data.feature_tables import SUFFIX as TABLE_SUFFIX
from segconf.data.feature_tables import features_of
from segconf.data.preprocessing import Preprocessing
from segconf.devices import usable_processors
from segconf.errors import DataError, FileError
from segconf.files import make_folder, remove_leftovers, replacing
from segconf.images.image_format import format_of
from segconf.images.io import read_header
from segconf.images.masks import read_mask
from segconf.images.resizing import slices_on_grid

FORMAT = 2
"""Part of every fingerprint: raise it when the same files would give other pixels."""


Progress = Callable[[str, int, int], None]
"""Called with what is being prepared, how many are done, and how many there are."""


Pixels = np.ndarray[tuple[int, ...], np.dtype[Any]]
"""uint8, but for the rows of a table."""


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
    """Arrays of one data set with one preprocessing."""

    def __init__(
        self, root: Path, preprocessing: Preprocessing, *, on_progress: Progress | None = None
    ) -> None:
        """Remember where the data set lies; nothing is read or written yet."""
        self.root = root
        self.preprocessing = preprocessing
        self.folder = cache_folder(root)
        self._on_progress = on_progress

    def images(self, cases: Sequence[Case], *, label: str) -> Pixels:
        """Images of the cases: (N, H, W, C) uint8, memory-mapped, read-only.

        Rows of a table are (N, 1, 1, C) float32, and not kept: a table is read at once.
        """
        grid = self.preprocessing
        if cases and cases[0].image_path.suffix.lower() == TABLE_SUFFIX:
            records = [case.record or 0 for case in cases]
            return features_of(cases[0].image_path, records, grid.columns)

        def decode(case: Case) -> Pixels:
            if case.record is not None:
                return slices_on_grid(grid.read(case.image_path).pixels, grid.size)
            image = grid.read(case.image_path, size=grid.size)
            return np.moveaxis(image.pixels, 0, -1)  # (H, W, C) or (D, H, W, C)

        settings = ["images", grid.size, grid.channels, grid.intensity_window]
        content = _fingerprint(cases, settings, [(case.image_path,) for case in cases])
        target = _Target(f"{label} images", content, (*grid.size, grid.channels))
        return self._open_or_make(target, cases, decode)

    def masks(self, cases: Sequence[Case], *, label: str) -> Pixels:
        """Masks of the cases: (N, H, W) uint8 class indices, 255 = ignore; labels: (N, 1, 1)."""
        grid = self.preprocessing
        if grid.task == "classification":
            return np.array([_label(case) for case in cases], np.uint8).reshape(-1, 1, 1)

        def decode(case: Case) -> Pixels:
            return read_mask(
                _mask_path(case),
                classes=grid.classes,
                size=grid.size,
                ignore_255=grid.ignore_255,
                image=read_header(case.image_path),
            )

        settings = ["masks", grid.size, grid.classes, grid.ignore_255]
        content = _fingerprint(cases, settings, [(c.image_path, _mask_path(c)) for c in cases])
        target = _Target(f"{label} masks", content, grid.size)
        return self._open_or_make(target, cases, decode)

    def _open_or_make(
        self, target: "_Target", cases: Sequence[Case], decode: Callable[[Case], Pixels]
    ) -> Pixels:
        height, width = self.preprocessing.size
        name = f"{target.label.replace(' ', '-')}-{height}x{width}-{target.fingerprint}.npy"
        path, shape = self.folder / name, (len(cases), *target.case_shape)
        if (ready := _open(path, shape)) is not None:
            return ready
        try:
            make_folder(self.folder)
            remove_leftovers(self.folder)
            with replacing(path) as temporary:
                self._write(temporary, shape, cases, decode, target.label)
        except FileError as error:
            raise DataError(
                f"{self.folder}: the cache of decoded images cannot be written ({error.reason}). "
                "Free some space, or name another folder with SEGCONF_CACHE."
            ) from error
        made = _open(path, shape)
        if made is None:
            raise DataError(f"{path}: vanished right after it was written. Start again.")
        return made

    def _write(
        self,
        path: Path,
        shape: tuple[int, ...],
        cases: Sequence[Case],
        decode: Callable[[Case], Pixels],
        label: str,
    ) -> None:
        """Fill an array. Windows renames no file that is still mapped: the map ends here."""
        pixels = np.lib.format.open_memmap(path, "w+", np.uint8, shape)
        self._decode_into(pixels, cases, decode, label)
        pixels.flush()

    def _decode_into(
        self, pixels: Pixels, cases: Sequence[Case], decode: Callable[[Case], Pixels], label: str
    ) -> None:
        """Decode every file once, in threads: decoding releases the interpreter lock."""
        problems: dict[int, str] = {}
        # Slices of one volume may have masks of different files: those accepted in review.
        files: dict[tuple[Path, Path | None], list[int]] = {}
        for index, case in enumerate(cases):
            files.setdefault((case.image_path, case.mask_path), []).append(index)

        def run(indices: Sequence[int]) -> int:
            try:
                decoded = decode(cases[indices[0]]).reshape(-1, *pixels.shape[1:])  # (D, ...)
            except DataError as error:
                problems[indices[0]] = str(error)
            else:
                for index in indices:
                    case = cases[index]
                    pixels[index] = decoded[case.record or case.slice_index or 0]
            return len(indices)

        done = 0
        with ThreadPoolExecutor(max_workers=usable_processors()) as pool:
            futures = [pool.submit(run, indices) for indices in files.values()]
            try:
                for future in as_completed(futures):
                    done += future.result()
                    if self._on_progress is not None:
                        self._on_progress(label, done, len(cases))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        raise_problems([problems[index] for index in sorted(problems)], self.root)


@dataclass(frozen=True, slots=True)
class _Target:
    """The array to make: its name, what it depends on, and the shape of one case."""

    label: str
    fingerprint: str
    case_shape: tuple[int, ...]


def _label(case: Case) -> int:
    if case.label is None:
        raise ValueError(f"case {case.id} has no label")
    return case.label


def _mask_path(case: Case) -> Path:
    if case.mask_path is None:
        raise ValueError(f"case {case.id} has no mask")
    return case.mask_path


def _fingerprint(cases: Sequence[Case], settings: object, files: Sequence[Sequence[Path]]) -> str:
    """Changes with the settings and with the name, size and time of any file."""
    stamps: list[object] = []
    for case, paths in zip(cases, files, strict=True):
        found = [file for path in paths for file in _files(case, path)]
        states = [file.stat() for file in found if file.exists()]
        # The time of the last change as well: a copy may keep that of the last write.
        times = [(s.st_size, s.st_mtime_ns, s.st_ctime_ns) for s in states]
        stamps.append([case.id, case.slice_index, times])  # an id tells records apart
    content = json.dumps([FORMAT, settings, stamps])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _files(case: Case, path: Path) -> Sequence[Path]:
    """Files that an image consists of."""
    return [path] if case.record is not None else format_of(path).files(path)


def _open(path: Path, shape: tuple[int, ...]) -> Pixels | None:
    """The array of that name when it is there and whole."""
    if 0 in shape:
        return np.zeros(shape, np.uint8)
    try:
        pixels: Pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return pixels if pixels.shape == shape and pixels.dtype == np.uint8 else None
