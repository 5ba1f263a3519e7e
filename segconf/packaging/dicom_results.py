"""`predict --dicom`: the results of a prediction folder as DICOM objects of the source study."""

import importlib.util
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.config.segments import SKIN_LESION, SegmentCode, default_codes
from segconf.errors import ConfigError, DataError
from segconf.files import replacing
from segconf.images.dicom_files import FILE_SUFFIXES, INSTALL, VOLUME_SUFFIX, files_of, open_dicom
from segconf.images.dicom_stack import Stack, open_stack
from segconf.images.io import read_confidence, read_image
from segconf.images.masks import read_mask
from segconf.images.types import reason
from segconf.inference.sources import Sources
from segconf.models.pretrained import is_pretrained
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow

FOLDER = "dicom"
LAST = "overlay.dcm"
_PLACED = ("CT", "MR", "PT")
_BINARY = 2
_UNUSABLE = (AttributeError, KeyError, ValueError, TypeError, OSError, IndexError)


@dataclass(frozen=True, slots=True)
class DicomReport:
    """What was written.

    Attributes:
        folder: with one folder per case.
        objects: how many files.
        problems: cases without objects, and why.
    """

    folder: Path
    objects: int
    problems: tuple[str, ...]


def check_sources(sources: Sources) -> None:
    """Refuse images that have no study, before anything is predicted.

    Raises:
        ConfigError: an image is no DICOM file, or highdicom is not installed.
    """
    if importlib.util.find_spec("highdicom") is None:
        raise ConfigError(f"DICOM results need highdicom. Install it: {INSTALL}")
    for source in sources.items:
        if source.path.suffix.lower() not in (*FILE_SUFFIXES, VOLUME_SUFFIX):
            raise ConfigError(
                f"{source.file}: is no DICOM image, so that there is no study for its results. "
                "Predict it without DICOM results."
            )


def unwritten(
    folder: PredictionFolder, sources: Sources, cases: Sequence[str]
) -> Iterator[CaseRow]:
    """Rows of the cases, and of images that were predicted before but have no objects yet."""
    now = set(cases)
    before = [
        source.case
        for source in sources.items
        if source.case not in now
        and folder.row(source.case).is_file()
        and not (folder.path / FOLDER / source.case / LAST).is_file()
    ]
    return folder.read_rows([*cases, *before])


def write_dicom(
    folder: PredictionFolder,
    rows: Iterable[CaseRow],
    *,
    segments: tuple[SegmentCode, ...] | None = None,
) -> DicomReport:
    """Write mask, probabilities, confidence and overlay of cases as DICOM objects.

    They lie in `dicom/CASE/`: `mask.dcm` (binary SEG), `probabilities.dcm` and `confidence.dcm`
    (fractional SEG), `confidence_map.dcm` (Parametric Map, of CT, MR and PET), and `overlay.dcm`
    (secondary capture). Patient and study are those of the source images.

    Args:
        folder: of the prediction, with the probabilities of all classes.
        rows: the cases.
        segments: codes of the classes; when not given, those of the pretrained model, else those
            of any structure.
    """
    codes = segments or _codes(folder)
    count, problems = 0, []
    for row in rows:
        if row.error:
            continue
        try:
            for name, made in _objects(folder, row, codes):
                path = folder.path / FOLDER / row.case / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with replacing(path) as temporary:
                    made.save_as(temporary)
                count += 1
        except DataError as error:
            problems.append(str(error))
        except _UNUSABLE as error:
            problems.append(
                f"{row.file}: its DICOM results cannot be written ({reason(error)}). Check the "
                "elements of the source that describe patient, study and equipment."
            )
    return DicomReport(folder.path / FOLDER, count, tuple(problems))


def _codes(folder: PredictionFolder) -> tuple[SegmentCode, ...]:
    """Codes of the classes: of the pretrained model, or those of any structure."""
    values = folder.record().values
    classes = folder.record().scale.classes
    if classes == _BINARY and is_pretrained(Path(values["model"]["file"]).parent):
        return (SKIN_LESION,)
    return default_codes([f"class {number}" for number in range(classes)])


def _objects(
    folder: PredictionFolder, row: CaseRow, codes: tuple[SegmentCode, ...]
) -> Iterator[tuple[str, Any]]:
    """Names and objects of a case."""
    from segconf.packaging.dicom_writing import (
        Algorithm,
        confidence_map,
        confidence_object,
        mask_object,
        overlay_object,
        probability_object,
    )

    values = folder.record().values
    model = values["model"]
    algorithm = Algorithm(f"{model['method']} UNet {model['encoder']}", model["sha256"])
    frames = _Frames.of(Path(values["images"]) / row.file)
    suffix = folder.map_suffix(row)
    mask = frames.stored(read_mask(folder.mask(row.case, suffix), classes=len(codes) + 1))
    confidence = frames.stored(read_confidence(folder.confidence(row.case, suffix)))
    every = [
        frames.stored(read_confidence(folder.probabilities(row.case, number, suffix)))
        for number in range(1, len(codes) + 1)
    ]
    yield "mask.dcm", mask_object(frames.source, mask, codes, algorithm)
    probabilities = np.stack(every, axis=-1)  # (N, H, W, K - 1)
    yield "probabilities.dcm", probability_object(frames.source, probabilities, codes, algorithm)
    yield "confidence.dcm", confidence_object(frames.source, confidence, algorithm)
    if frames.stack is not None and frames.stack.modality in _PLACED and frames.source.is_placed:
        yield "confidence_map.dcm", confidence_map(frames.source, confidence, algorithm)
    picture = read_image(folder.overlay(row.case)).pixels.transpose(1, 2, 0)
    yield LAST, overlay_object(frames.source, picture, algorithm)


@dataclass(frozen=True, slots=True)
class _Frames:
    """Source images, and how maps (D, H, W) become frames in their order."""

    source: Any
    stack: Stack | None

    @classmethod
    def of(cls, path: Path) -> "_Frames":
        from segconf.packaging.dicom_writing import Source

        if path.suffix != VOLUME_SUFFIX:
            return cls(Source.of([_header(files_of(path)[0], path)]), None)
        stack = open_stack(path)
        files = list(dict.fromkeys(one.file for one in stack.slices))
        return cls(Source.of([_header(file, path) for file in files]), stack)

    def stored(self, values: NDArray[Any]) -> NDArray[Any]:
        """Frames (N, rows, columns) as the source stores them, of (H, W) or (D, H, W).

        Raises:
            DataError: the values are those of another grid.
        """
        if self.stack is None:
            return values[None]
        if values.shape[-2:] != self.stack.shape[1:] or values.size != math.prod(self.stack.shape):
            raise DataError(
                f"{self.stack.path}: its map is {values.shape}, the series {self.stack.shape}. "
                "Predict it again."
            )
        volume = values.reshape(self.stack.shape)
        planes = self.stack.orientation.voxels(volume).transpose(2, 1, 0)  # (N, rows, columns)
        # Slices of files keep their order; frames of one file take that of the file.
        frames = [
            number if one.frame is None else one.frame
            for number, one in enumerate(self.stack.slices)
        ]
        return np.ascontiguousarray(planes[np.argsort(frames)])


def _header(file: Path, shown: Path) -> Any:
    with open_dicom(file, shown=shown) as dataset:
        for name in ("PixelData", "OverlayData"):
            if name in dataset:
                del dataset[name]
        return dataset
