"""The metrics of `evaluate` for probability maps that any other tool wrote."""

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.data.cases import ImageCases, images_of, pair_folder, strip_mask_suffix
from segconf.errors import DataError
from segconf.evaluation.evaluator import Evaluator, Tolerances
from segconf.evaluation.report import EvaluationReport, build_report, write_report
from segconf.images.image_format import case_name, format_of, image_suffix
from segconf.images.io import (
    confidence_bits,
    read_confidence,
    read_header,
    read_probabilities,
)
from segconf.images.masks import check_place, read_mask
from segconf.images.types import Header
from segconf.metrics.selective import aurc_bounds
from segconf.metrics.streaming import ConfidenceMetrics

BINARY = 2


ARRAY_NAMES = ("probabilities", "softmax")


FULL_DEPTH = 16


OWN_FOLDERS = ("masks", "confidence")


PICTURE_AXES = 2
VOLUME_AXES = 4


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
    NIfTI with the classes on the fourth axis, or one file per class called NAME_0, NAME_1, ...;
    a folder written by `segconf predict`.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Give the folder that holds the predictions.")
    if all((folder / name).is_dir() for name in OWN_FOLDERS):
        maps = sorted(p for p in (folder / "confidence").rglob("*") if image_suffix(p))
        return Predictions(folder, tuple(maps), classes, "maps", allow_quantized)
    arrays = sorted(p for p in folder.iterdir() if p.suffix in {".npz", ".npy"})
    images = sorted(p for p in folder.iterdir() if image_suffix(p))
    volumes = [p for p in images if format_of(p).stores_probabilities]
    if arrays:
        return Predictions(folder, tuple(arrays), classes, "arrays", allow_quantized)
    if volumes:
        return Predictions(folder, tuple(volumes), classes, "volumes", allow_quantized)
    raise DataError(
        f"{folder}: no predictions here. Expected .npz, .npy or .nii.gz files of probabilities, or "
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
            content: Any = np.load(path, allow_pickle=False)
            if path.suffix == ".npz":
                with content:
                    names = [name for name in ARRAY_NAMES if name in content]
                    if not names:
                        raise DataError(
                            f"{path}: holds {', '.join(content)}. Expected an array called "
                            "`probabilities` or `softmax`."
                        )
                    content = content[names[0]]
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{path}: not a readable array file ({error}).") from error
        # nnU-Net keeps a slice axis of length one for pictures.
        values = content[:, 0] if content.ndim == 4 and content.shape[1] == 1 else content  # noqa: PLR2004
        return self._checked(path.stem, path, values)

    def _volumes(self) -> Iterator[PredictedCase]:
        """One file with all classes, or a file per class; a single one of two is the foreground."""
        groups: dict[str, dict[int, Path]] = {}
        for path in self.files:
            name, _, number = case_name(path).rpartition("_")
            if name and number.isdigit() and int(number) < self.classes:
                groups.setdefault(name, {})[int(number)] = path
            else:
                groups[case_name(path)] = {-1: path}
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
            maps = [read_probabilities(paths[number])[0] for number in range(self.classes)]
            yield self._checked(name, first, np.stack(maps))

    def _map(self, path: Path) -> PredictedCase:
        below = path.relative_to(self.folder / "confidence")
        name = (below.parent / case_name(path)).as_posix()
        bits = confidence_bits(path)
        if bits and bits < FULL_DEPTH and not self.allow_quantized:
            raise DataError(
                f"{path}: {bits}-bit confidence. So few levels tie most pixels: AURC can be off by "
                "a factor of several. Save 16 bits, or set allow_quantized."
            )
        confidence = read_confidence(path).astype(np.float64)  # (H, W)
        mask_path = self.folder / "masks" / below
        prediction = read_mask(mask_path, classes=max(self.classes, 2))
        if prediction.shape != confidence.shape:
            raise DataError(
                f"{path}: {confidence.shape}, its mask {mask_path.name} {prediction.shape}. "
                "Both must have the same size."
            )
        # The other classes share the rest: exact for two classes, else `score` adds a note.
        rest = (1 - confidence) / (self.classes - 1)
        probabilities = np.broadcast_to(rest, (self.classes, *rest.shape)).copy()
        np.put_along_axis(
            probabilities, prediction[None].astype(np.int64), confidence[None], axis=0
        )
        return PredictedCase(name, path, torch.from_numpy(probabilities), 2**bits if bits else 0)

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


@dataclass(frozen=True, slots=True)
class Scored:
    """The report, and how far the storage of the maps limits it."""

    report: EvaluationReport
    aurc_bounds: tuple[float, float] | None
    """AURC over all orders of pixels that share a level; None for floating point."""


def score(
    predictions: Path,
    masks: Path,
    *,
    classes: int = BINARY,
    out: Path | None = None,
    allow_quantized: bool = False,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Scored:
    """Evaluate a folder of predictions by a folder of masks of the same names.

    Args:
        predictions: see `find_predictions` for what is understood.
        masks: pictures or NIfTI files; `_segmentation` and `_mask` in names are tolerated.
        classes: number of classes K.
        out: folder for the report; nothing is written when not given.
        allow_quantized: accept confidence of 8 bits.
        on_progress: called with a label, the cases done and their number.
    """
    found = find_predictions(predictions, classes=classes, allow_quantized=allow_quantized)
    truths = _masks_by_name(masks)
    evaluator = Evaluator(classes, Tolerances())
    levels = 0
    for number, case in enumerate(found, start=1):
        _add_case(evaluator, case, truths, masks)
        levels = max(levels, case.levels)
        if on_progress is not None:
            on_progress("predictions", number, len(found.files))
    about: dict[str, object] = {
        "run": predictions.name,
        "method": "given predictions",
        "split": "given masks",
        "grid": "that of the predictions",
        "encoder": "unknown",
        "protocol": "strict",
        "levels": levels or "floating point",
        "masks_without_prediction": sorted(set(truths) - {row.case for row in evaluator.rows}),
    }
    bounds = _aurc_bounds(evaluator.pooled["all"]) if levels else None
    if bounds is not None:
        about["aurc_bounds"] = list(bounds)
    if levels and classes > BINARY:
        about["note"] = "nll and brier assume that the classes not predicted are equally likely"
    report = build_report(evaluator, about)
    if out is not None:
        write_report(report, out)
    return Scored(report, bounds)


def _masks_by_name(folder: Path) -> dict[str, ImageCases]:
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder. Give the folder that holds the masks.")
    paired = pair_folder(folder, None)
    if paired.problems:
        raise DataError(paired.problems[0])
    return {strip_mask_suffix(mask.name): mask for mask in images_of(paired.cases)}


def _aurc_bounds(metrics: ConfidenceMetrics) -> tuple[float, float]:
    correct = int(metrics.confusion.trace())
    return aurc_bounds(metrics.groups(), correct, metrics.pixels - correct)


def _add_case(
    evaluator: Evaluator, case: PredictedCase, truths: dict[str, ImageCases], masks: Path
) -> None:
    if case.name not in truths:
        raise DataError(f"{case.path}: no mask called {case.name} in {masks}.")
    path, group = truths[case.name].path, strip_mask_suffix(truths[case.name].group)
    truth = read_mask(path, classes=evaluator.classes)
    probabilities = _oriented(case, read_header(path))
    if truth.shape != tuple(probabilities.shape[1:]):
        raise DataError(
            f"{case.path}: {tuple(probabilities.shape[1:])}, its mask {path.name} "
            f"{truth.shape}. Predictions must have the size of their masks."
        )
    try:
        values = probabilities if truth.ndim == PICTURE_AXES else probabilities.movedim(0, 1)
        evaluator.add(case.name, values, truth, group=group)
    except ValueError as error:
        raise DataError(f"{case.path}: {error}") from error


def _oriented(case: PredictedCase, mask: Header) -> Tensor:
    """Probabilities (K, H, W) or (K, D, H, W) in the orientation in which the mask is read.

    An array has the axes of the file of its mask, the last one first, as nnU-Net saves it.
    """
    if image_suffix(case.path):
        check_place(case.path, read_header(case.path), mask)
        return case.probabilities
    if mask.orientation is None:
        return case.probabilities
    values = case.probabilities.numpy()
    slices = values if values.ndim == VOLUME_AXES else values[:, None]  # (K, k, j, i)
    pixels = np.moveaxis(mask.orientation.pixels(slices.T), -1, 0)  # (K, D, H, W)
    return torch.from_numpy(np.ascontiguousarray(pixels[:, 0] if pixels.shape[1] == 1 else pixels))
