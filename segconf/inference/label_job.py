"""Predict the labels of images: files are read by threads while the network sees others."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from segconf.confidence import FloatArray, probabilities_of
from segconf.data.feature_tables import features_of
from segconf.devices import usable_processors
from segconf.errors import ConfigError, DataError
from segconf.files import write_text
from segconf.images.io import image_hash
from segconf.images.naming import printable
from segconf.inference.model import Model, NetworkInput
from segconf.inference.pipeline import PredictOptions
from segconf.inference.sources import Source, Sources
from segconf.locks import locked
from segconf.results.label_rows import LabelRow, label_table, read_label_table, with_label_flags
from segconf.results.maps import with_slices
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import NOT_FINITE, UNREADABLE
from segconf.review.pictures import has_label_pictures, write_label_pictures
from segconf.runs.run_cases import batch_size

WRITTEN_EVERY = 20
"""Batches after which the table is brought up to date: what an interruption can lose."""
FOR_MASKS = "is for masks; this model predicts labels, with all probabilities. Leave it out."
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class _Read:
    """A row without a label yet and, where the file could be read, its pixels (1, h, w, C)."""

    row: LabelRow
    inputs: NetworkInput | None = None


class LabelJob:
    """Images on their way through a classifier."""

    def __init__(
        self,
        model: Model,
        folder: PredictionFolder,
        *,
        skip_existing: bool = False,
        workers: int | None = None,
    ) -> None:
        """Nothing starts yet.

        Args:
            model: the classifier.
            folder: of the results.
            skip_existing: leave images alone that are in the table and have not changed since.
            workers: threads that read; as many as processors by default.
        """
        self._model = model
        self._folder = folder
        self._names = model.config.data.class_names
        self._skip_existing = skip_existing
        self._workers = workers or usable_processors()
        self._known: dict[str, LabelRow] = {}

    def run(
        self,
        sources: Sequence[Source],
        on_row: Callable[[LabelRow], None],
        on_progress: Progress | None,
    ) -> None:
        """Predict and write; broken images do not stop the others.

        Args:
            sources: the images.
            on_row: called with every row that is written, also of an image that failed.
            on_progress: is told how many images of how many are done.
        """
        if self._skip_existing:
            self._known = read_label_table(self._folder.labels_file, self._names)
        waiting: list[LabelRow] = []
        done = 0
        with ThreadPoolExecutor(self._workers, thread_name_prefix="segconf") as pool:
            for number, batch in enumerate(self._batches(sources, pool), start=1):
                waiting += self._labeled([one for one in batch if one is not None])
                done += len(batch)
                if number % WRITTEN_EVERY == 0 or done == len(sources):
                    self._write(waiting)
                    for row in waiting:
                        on_row(row)
                    waiting = []
                if on_progress is not None:
                    on_progress(done, len(sources))

    def _batches(
        self, sources: Sequence[Source], pool: ThreadPoolExecutor
    ) -> Iterator[list[_Read | None]]:
        """A whole number of batches of the network; the next files are read meanwhile."""
        at_once = self._model.batch_size
        size = at_once * max(1, batch_size(self._model.config) // at_once)
        chunks = [sources[start : start + size] for start in range(0, len(sources), size)]
        ahead = [pool.submit(self._read, source) for source in (chunks[0] if chunks else ())]
        for following in [*chunks[1:], []]:
            futures, ahead = ahead, [pool.submit(self._read, source) for source in following]
            yield [future.result() for future in futures]

    def _read(self, source: Source) -> _Read | None:
        """The image; None where it is in the table already."""
        row = LabelRow(source.case, source.file, source.group)
        if source.problem:
            return _failed(row, source.problem)
        try:
            if source.record is None:
                return self._image(source, row)
            return self._record(source, source.record, row)
        except DataError as error:
            return _failed(row, str(error))

    def _known_row(self, case: str, content: str) -> LabelRow | None:
        """What is in the table about an image of this content."""
        known = self._known.get(case)
        is_same = known is not None and known.image_sha256 == content and not known.error
        return known if is_same else None

    def _image(self, source: Source, row: LabelRow) -> _Read | None:
        """An image; what the review page shows of it is written on the way."""
        content = image_hash(source.path)
        known = self._known_row(source.case, content)
        if known is not None and has_label_pictures(self._folder, known):
            return None
        image = self._model.read(source.path)
        pixels = with_slices(image.pixels)  # (C, D, H, W)
        if pixels.shape[1] > 1:
            raise DataError(f"{source.path}: a volume; labels are for pictures.")
        height, width = pixels.shape[2:]
        row = replace(row, height=height, width=width, image_sha256=content)
        write_label_pictures(self._folder, row, pixels[:, 0])
        return _Read(row, self._model.network_input(image))

    def _record(self, source: Source, number: int, row: LabelRow) -> _Read | None:
        """A row of a table."""
        rows = features_of(source.path, [number], self._model.config.data.columns)
        content = hashlib.sha256(rows.tobytes()).hexdigest()
        if self._known_row(source.case, content) is not None:
            return None
        columns = self._model.config.model.channels
        if rows.shape[-1] != columns:
            raise DataError(
                f"{source.path}: {rows.shape[-1]} columns of numbers, but the model was trained "
                f"with {columns}."
            )
        return _Read(replace(row, image_sha256=content), NetworkInput(rows, None))

    def _labeled(self, batch: Sequence[_Read]) -> list[LabelRow]:
        """The rows with their labels."""
        inputs = [one.inputs for one in batch if one.inputs is not None]
        if not inputs:
            return [one.row for one in batch]
        described = [one.feature_pixels for one in inputs if one.feature_pixels is not None]
        output = self._model.grid_output(
            np.concatenate([one.pixels for one in inputs]),
            np.concatenate(described) if described else None,
        )
        # (K,) and a score each
        outputs = zip(output.logits[:, :, 0, 0], output.ood_scores.tolist(), strict=True)
        return [one.row if one.inputs is None else self._row(one, *next(outputs)) for one in batch]

    def _row(self, read: _Read, logits: FloatArray, ood_score: float) -> LabelRow:
        if not np.isfinite(logits).all():
            reason = f"{read.row.file}: the network's output for this image is not finite."
            return replace(read.row, flags=(NOT_FINITE,), error=printable(reason))
        probabilities = probabilities_of(logits)
        best = int(probabilities.argmax())
        row = replace(
            read.row,
            label=self._names[best],
            probabilities=tuple(probabilities.tolist()),
            ood_score=ood_score,
        )
        detector = self._model.detector
        limit = None if detector is None else detector.threshold
        return with_label_flags(row, self._model.calibration, limit)

    def _write(self, rows: Sequence[LabelRow]) -> None:
        """Bring the table up to date; other shards write into the same one."""
        path = self._folder.labels_file
        with locked(self._folder.path, wait=True):
            table = read_label_table(path, self._names) | {row.case: row for row in rows}
            write_text(path, label_table(table.values(), self._names))


def _failed(row: LabelRow, reason: str) -> _Read:
    return _Read(replace(row, flags=(UNREADABLE,), error=printable(reason)))


def check_kind(model: Model, sources: Sources) -> None:
    """Refuse images for a model of tables, and tables for a model of images.

    Raises:
        ConfigError: the model was trained on the other.
    """
    wants_table = model.config.has_table
    has_table = any(source.record is not None for source in sources.items)
    if wants_table != has_table:
        wanted = "a table (.csv)" if wants_table else "images"
        raise ConfigError(f"{model.file}: was trained on {wanted}. Predict {wanted} with it.")


def check_label_options(options: PredictOptions) -> None:
    """Refuse what is written for masks only.

    Raises:
        ConfigError: such an option is set.
    """
    given = {
        "tile": options.tile,
        "map_format": options.map_format is not None,
        "save_probabilities": options.save_probabilities,
    }
    for name in (name for name, is_given in given.items() if is_given):
        raise ConfigError(f"{name}: {FOR_MASKS}")
