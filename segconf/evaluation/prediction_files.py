"""Predictions that any tool wrote: which files a folder holds, and probabilities from them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.arrays import read_array, read_arrays
from segconf.errors import DataError
from segconf.files import described
from segconf.images.image_format import case_name, format_of, image_suffix
from segconf.images.io import confidence_bits, read_confidence, read_probabilities
from segconf.images.masks import read_mask

BINARY = 2


ARRAY_NAMES = ("probabilities", "softmax")


FULL_DEPTH = 16


OWN_FOLDERS = ("masks", "confidence")
SAVED = "probabilities"


FULL = 65_535
"""The highest of the levels in which `segconf predict` writes confidence, also as NIfTI."""
_TOLERANCE = 0.02
SUM_TOLERANCE = 1e-3
"""How far probabilities may miss a sum of 1 beside what rounding does."""


@dataclass(frozen=True, slots=True)
class PredictedCase:
    """Probabilities (K, H, W) or, of a volume, (K, D, H, W) of one case.

    `levels` says how many its map distinguishes; 0 for floating point.
    """

    name: str
    path: Path
    probabilities: Tensor
    levels: int = 0


def find_predictions(folder: Path, *, classes: int, allow_quantized: bool) -> "Predictions":
    """Decide how a folder stores its predictions.

    Known are: `.npz` with an array `probabilities` or `softmax` (nnU-Net) and `.npy`, class first;
    NIfTI with the classes on the fourth axis, or a NIfTI or PNG file per class called NAME_0,
    NAME_1, ...; a folder written by `segconf predict`, where the saved probabilities count if there
    are more than two classes, which the confidence alone does not tell.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Give the folder that holds the predictions.")
    if all((folder / name).is_dir() for name in OWN_FOLDERS):
        saved = sorted(p for p in (folder / SAVED).rglob("*") if image_suffix(p))
        if saved and classes > BINARY:
            return Predictions(folder / SAVED, tuple(saved), classes, "volumes", allow_quantized)
        maps = sorted(p for p in (folder / "confidence").rglob("*") if image_suffix(p))
        if not maps:
            raise DataError(f"{folder / 'confidence'}: no confidence map here. Predict again.")
        return Predictions(folder, tuple(maps), classes, "maps", allow_quantized)
    arrays = sorted(p for p in folder.iterdir() if p.suffix in {".npz", ".npy"})
    images = sorted(p for p in folder.iterdir() if image_suffix(p))
    volumes = [p for p in images if format_of(p).stores_probabilities or _class_of(p, classes)]
    if arrays:
        return Predictions(folder, tuple(arrays), classes, "arrays", allow_quantized)
    if volumes:
        return Predictions(folder, tuple(volumes), classes, "volumes", allow_quantized)
    raise DataError(
        f"{folder}: no predictions here. Expected .npz, .npy or .nii.gz files of probabilities, "
        "files NAME_0, NAME_1, ... of each class, or "
        "the masks/ and confidence/ folders that `segconf predict` writes."
    )


@dataclass(frozen=True, slots=True)
class Predictions:
    """Files of predictions and how to read them."""

    folder: Path
    files: tuple[Path, ...]
    classes: int
    kind: str
    allow_quantized: bool

    @property
    def are_confidence(self) -> bool:
        """Whether only the predicted class has a probability of its own."""
        return self.kind == "maps"

    def __iter__(self) -> Iterator[PredictedCase]:
        match self.kind:
            case "arrays":
                yield from (self._array(path) for path in self.files)
            case "maps":
                yield from (self._map(path) for path in self.files)
            case _:
                yield from self._volumes()

    def _array(self, path: Path) -> PredictedCase:
        try:
            if path.suffix == ".npz":
                found = read_arrays(path, ARRAY_NAMES)
                if not found:
                    raise DataError(
                        f"{path}: holds other arrays. Expected an array called `probabilities` or "
                        "`softmax`."
                    )
                content = next(iter(found.values()))
            else:
                content = read_array(path)
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: not a readable array file ({described(error)}). Save it again."
            ) from error
        if content.ndim == 0:
            raise DataError(f"{path}: a single number. Expected probabilities, the classes first.")
        # nnU-Net keeps a slice axis of length one for pictures.
        values = content[:, 0] if content.ndim == 4 and content.shape[1] == 1 else content  # noqa: PLR2004
        return self._checked(path.stem, path, values)

    def _volumes(self) -> Iterator[PredictedCase]:
        """One file with all classes, or a file per class; a single one of two is the foreground."""
        groups: dict[str, dict[int, Path]] = {}
        for path in self.files:
            below = path.relative_to(self.folder).parent
            if found := _class_of(path, self.classes):
                groups.setdefault((below / found[0]).as_posix(), {})[found[1]] = path
            else:
                groups[(below / case_name(path)).as_posix()] = {-1: path}
        for name, paths in groups.items():
            first = next(iter(paths.values()))
            if -1 in paths:
                yield self._checked(name, first, read_probabilities(first))
                continue
            missing = sorted(set(range(self.classes)) - set(paths))
            if missing:
                raise DataError(
                    f"{first}: no file for class {missing[0]} of {name} (expected "
                    f"{name}_0 to {name}_{self.classes - 1})."
                )
            ordered = [paths[number] for number in range(self.classes)]
            if all(format_of(path).stores_probabilities for path in ordered):
                yield self._checked(
                    name, first, np.stack([read_probabilities(p)[0] for p in ordered])
                )
            else:
                yield self._pictures(name, ordered)

    def _pictures(self, name: str, paths: Sequence[Path]) -> PredictedCase:
        """A picture for each class; none of them is 0, because what has the lowest level is not.

        Rounding to L levels moves the sum over the K classes by at most K / (L - 1), which is
        undone.
        """
        levels = 2 ** min(self._bits(path) for path in paths)
        values = np.stack([read_confidence(path).astype(np.float64) for path in paths])
        total = values.sum(axis=0)  # (H, W)
        if np.abs(total - 1).max() > self.classes / (levels - 1) + SUM_TOLERANCE:
            raise DataError(
                f"{paths[0]}: the classes of {name} do not sum to 1. Save their probabilities."
            )
        values = np.maximum(values, 0.25 / (levels - 1))
        return replace(self._checked(name, paths[0], values / values.sum(axis=0)), levels=levels)

    def _bits(self, path: Path) -> int:
        """Bits of a map, 0 for floating point; few of them only where that is accepted."""
        bits = confidence_bits(path)
        if bits and bits < FULL_DEPTH and not self.allow_quantized:
            raise DataError(
                f"{path}: {bits}-bit confidence. So few levels tie most pixels: AURC can be off by "
                "a factor of several. Save 16 bits, or set allow_quantized."
            )
        return bits

    def _map(self, path: Path) -> PredictedCase:
        below = path.relative_to(self.folder / "confidence")
        name = (below.parent / case_name(path)).as_posix()
        bits = self._bits(path)
        confidence = read_confidence(path).astype(np.float64)  # (H, W) or (D, H, W)
        levels = 2**bits if bits else _levels_of(confidence)
        mask_path = self.folder / "masks" / below
        prediction = read_mask(mask_path, classes=max(self.classes, 2))
        if prediction.shape != confidence.shape:
            raise DataError(
                f"{path}: {confidence.shape}, its mask {mask_path.name} {prediction.shape}. "
                "Both must have the same size."
            )
        if levels:
            # A level stands for the middle of what is rounded to it; the highest one ends at 1.
            confidence = np.minimum(confidence, 1 - 0.25 / (levels - 1))
        # The other classes share the rest: exact for two classes, else `score` adds a note.
        rest = (1 - confidence) / (self.classes - 1)
        probabilities = np.broadcast_to(rest, (self.classes, *rest.shape)).copy()
        np.put_along_axis(
            probabilities, prediction[None].astype(np.int64), confidence[None], axis=0
        )
        return PredictedCase(name, path, torch.from_numpy(probabilities), levels)

    def _checked(self, name: str, path: Path, values: NDArray[Any]) -> PredictedCase:
        if not np.issubdtype(values.dtype, np.floating):
            raise DataError(
                f"{path}: {values.dtype} values. Expected probabilities, not classes or levels."
            )
        if values.shape[0] == 1 and self.classes == 2:  # noqa: PLR2004 - foreground alone
            values = np.concatenate([1 - values, values])
        if values.shape[0] != self.classes:
            raise DataError(
                f"{path}: {values.shape[0]} classes on the first axis of {values.shape}, expected "
                f"{self.classes}. Set classes to their number, or save the classes first."
            )
        return PredictedCase(name, path, torch.from_numpy(np.ascontiguousarray(values)))


def _class_of(path: Path, classes: int) -> tuple[str, int] | None:
    """Name and class of a file called NAME_0, NAME_1, ...; None for other names."""
    name, _, number = case_name(path).rpartition("_")
    return (name, int(number)) if name and number.isdigit() and int(number) < classes else None


def _levels_of(confidence: NDArray[np.float64]) -> int:
    """Levels of a map in floating point that holds nothing but multiples of 1 / 65535; else 0."""
    steps = confidence * FULL
    return FULL + 1 if np.abs(steps - np.rint(steps)).max() < _TOLERANCE else 0
