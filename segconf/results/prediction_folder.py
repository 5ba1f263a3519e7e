"""A prediction folder: its files by name, and `run.json`."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segconf.config.records import read_record
from segconf.conventions import FULL_SCALE
from segconf.errors import DataError
from segconf.files import is_regular, remove_leftovers, write_text
from segconf.images.image_format import MAP_SUFFIXES, MapFormat, image_suffix, map_file
from segconf.images.io import read_confidence
from segconf.images.masks import read_mask
from segconf.overlays.contours import Regions, empty_regions, fill_regions, shown_contours
from segconf.results.label_rows import TABLE as LABELS
from segconf.results.label_rows import LabelRow, read_label_table
from segconf.results.rows import CaseRow, read_row
from segconf.results.run_record import RunRecord, StoredRun

_VOLUME = 3
"""Axes of the map of several slices."""


class PredictionFolder:
    """The files of a prediction by name."""

    def __init__(self, path: Path, map_format: MapFormat | None = None) -> None:
        """Nothing is read or written yet.

        Args:
            path: of the folder.
            map_format: in which maps are written; when not given, that of maps of the image, or
                the one that is there.
        """
        self.path = path
        self._map_format = map_format
        self.run_file = path / "run.json"
        self.table_file = path / "cases.csv"
        self.structures_file = path / "structures.csv"
        self.page_file = path / "review.html"
        self.labels_file = path / LABELS

    def mask(self, case: str, suffix: str) -> Path:
        """Class index of every pixel."""
        return self.path / "masks" / f"{case}{suffix}"

    def confidence(self, case: str, suffix: str) -> Path:
        """Confidence of every pixel."""
        return self.path / "confidence" / f"{case}{suffix}"

    def probabilities(self, case: str, number: int, suffix: str) -> Path:
        """Probability of the class with that number, where they were asked for."""
        return self.path / "probabilities" / f"{case}_{number}{suffix}"

    def map_suffix(self, row: CaseRow) -> str:
        """Ending of the mask and the maps of a case."""
        if self._map_format is not None:
            return MAP_SUFFIXES[self._map_format]
        return image_suffix(map_file(self.path / "masks", row.case, row.file))

    def overlay(self, case: str) -> Path:
        """The picture to look at."""
        return self.path / "overlays" / f"{case}.png"

    def row(self, case: str) -> Path:
        """Written last: a case that has it is complete."""
        return self.path / "review" / "rows" / f"{case}.json"

    def structures(self, case: str) -> Path:
        """Numbers of every class of a case."""
        return self.path / "review" / "structures" / f"{case}.csv"

    def shown_image(self, case: str, suffix: str = ".jpg") -> Path:
        """The image as the review page shows it."""
        return self.path / "review" / "images" / f"{case}{suffix}"

    def thumbnail(self, case: str) -> Path:
        """The image in the queue of the review page."""
        return self.path / "review" / "thumbnails" / f"{case}.jpg"

    def page_map(self, case: str) -> Path:
        """Confidence and mask as the review page reads them."""
        return self.path / "review" / "maps" / f"{case}.js"

    def outputs(self, case: str, suffix: str) -> list[Path]:
        """Files that every predicted case has; its maps have the suffix."""
        return [
            self.mask(case, suffix),
            self.confidence(case, suffix),
            self.overlay(case),
            self.shown_image(case),
            self.thumbnail(case),
            self.page_map(case),
            self.structures(case),
            self.row(case),
        ]

    def is_complete(self, case: str, image_sha256: str) -> bool:
        """Whether a case has all its files, made from an image of this content."""
        try:
            row = read_row(self.row(case), case)
        except DataError:
            return False
        files = self.outputs(row.case, self.map_suffix(row))
        return (
            not row.error
            and (row.case, row.image_sha256) == (case, image_sha256)
            and all(is_regular(file) for file in files)
        )

    def cases(self) -> list[str]:
        """Names of all cases that were finished, in their order."""
        root = self.path / "review" / "rows"
        files = (path for path in root.rglob("*.json") if not path.name.startswith("."))
        return sorted(path.relative_to(root).as_posix().removesuffix(".json") for path in files)

    def read_rows(self, cases: Iterable[str]) -> Iterator[CaseRow]:
        """Rows of cases, one after another: there may be many."""
        return (read_row(self.row(case), case) for case in cases)

    def rows(self) -> list[CaseRow]:
        """All cases by name."""
        return list(self.read_rows(self.cases()))

    def label_rows(self) -> list[LabelRow]:
        """All images by name, where labels were predicted."""
        return list(read_label_table(self.labels_file, self.record().class_names).values())

    def record(self) -> RunRecord:
        """What the folder says about itself."""
        if not self.run_file.exists():
            raise DataError(
                f"{self.path}: not a prediction folder (run.json is missing). "
                "Give the folder that `segconf predict --out` wrote."
            )
        way_out = "Predict again into a new folder."
        found = read_record(self.run_file, StoredRun, error=DataError, way_out=way_out)
        return RunRecord(found.model_dump(mode="json", by_alias=True))

    def remove_leftovers(self) -> None:
        """Remove what killed jobs left half written."""
        for parent, _, _ in os.walk(self.path):
            remove_leftovers(Path(parent))

    def write_record(self, record: RunRecord) -> None:
        """Describe the folder."""
        write_text(self.run_file, json.dumps(record.values, ensure_ascii=False, indent=1) + "\n")

    def read_slice(self, row: CaseRow) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
        """Mask and confidence levels (H, W) of the slice that the overlay shows."""
        classes = self.record().scale.classes
        suffix = self.map_suffix(row)
        mask_file = self.mask(row.case, suffix)
        mask = read_mask(mask_file, classes=max(classes, 2))
        confidence = read_confidence(self.confidence(row.case, suffix))
        if mask.shape != confidence.shape:
            raise DataError(
                f"{mask_file}: {mask.shape}, its confidence map {confidence.shape}. Predict the "
                "case again."
            )
        if mask.ndim == _VOLUME:
            if row.slice >= len(mask):
                raise DataError(f"{mask_file}: has no slice {row.slice}. Predict the case again.")
            mask, confidence = mask[row.slice], confidence[row.slice]
        return mask, np.rint(confidence.astype(np.float64) * FULL_SCALE).astype(np.uint16)

    def read_regions(self, row: CaseRow) -> Regions | None:
        """Regions (H, W) of the contours of that slice, where probabilities were saved."""
        record = self.record()
        contours = shown_contours(record.contours)
        suffix = self.map_suffix(row)
        files = [self.probabilities(row.case, k, suffix) for k in range(record.scale.classes)]
        if not contours or not all(file.is_file() for file in files):
            return None
        whole = [read_confidence(file) for file in files]  # (H, W), or (D, H, W) of a volume
        planes = np.stack([one[row.slice] if one.ndim == _VOLUME else one for one in whole])
        return fill_regions(empty_regions(planes.shape[1:], contours), planes, contours)


def select_rows(folder: PredictionFolder, names: Sequence[str]) -> list[CaseRow]:
    """Rows of the named cases, of all that were predicted when none is named.

    Raises:
        DataError: a name is not in the folder, or its image was not predicted.
    """
    rows = {row.case: row for row in folder.rows()}
    if not names:
        return [row for row in rows.values() if not row.error]
    missing = [name for name in names if name not in rows or rows[name].error]
    if missing:
        raise DataError(
            f"{folder.path}: no predicted case called {', '.join(missing)}. "
            "The first column of cases.csv has the names."
        )
    return [rows[name] for name in names]
