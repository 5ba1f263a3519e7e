"""The prediction job: decoding, network and encoding overlap, in bounded memory.

With an accelerator, or for tiles, volumes and methods of several passes, the network runs in the
calling thread on batches while other threads decode and encode. For pictures on a processor every
thread takes an image from the file to the results, with a network of one thread: no processor waits
for another, and the numbers do not depend on how many there are.
"""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import numpy as np

from segconf.confidence import FloatArray
from segconf.devices import usable_processors
from segconf.errors import DataError
from segconf.images.image_format import MapFormat, format_of
from segconf.images.io import image_hash, read_header
from segconf.images.naming import printable
from segconf.images.types import ByteArray, Image
from segconf.inference.model import GridOutput, Model, NetworkInput
from segconf.inference.sources import Source
from segconf.overlays.overlay import Style
from segconf.results.maps import Maps, write_failure
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import NOT_FINITE, NOTE, TOO_FEW_PIXELS, UNREADABLE, CaseRow
from segconf.results.structures import is_complete, with_geometry
from segconf.results.summary import TOO_SMALL, summarize
from segconf.review.pictures import write_case


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """Options of a job.

    Attributes:
        tile: slide the network over the image at its native resolution.
        style: of the overlays.
        save_probabilities: keep those of all classes.
        map_format: of masks and maps; pictures for pictures and NIfTI for volumes by default.
        skip_existing: leave images alone that have complete results and have not changed since.
        workers: threads that decode and encode; as many as processors by default.
    """

    tile: bool = False
    style: Style = "contour"
    save_probabilities: bool = False
    map_format: MapFormat | None = None
    skip_existing: bool = False
    workers: int | None = None


PIXELS_IN_FLIGHT = 64_000_000
"""Pixels of all images between decoding and encoding; one larger image goes alone."""
_SPARE_IMAGES = 2
Progress = Callable[[int, int], None]
OnRow = Callable[[CaseRow], None]


@dataclass(frozen=True, slots=True)
class _Decoded:
    """An image that was read, and its slices as the network takes them; tiles need none."""

    source: Source
    image: Image
    sha256: str
    remarks: tuple[str, ...]
    inputs: NetworkInput | None = None


@dataclass(frozen=True, slots=True)
class _Failed:
    """An image that was not predicted, and why."""

    source: Source
    reason: str
    flag: str = UNREADABLE


class Job:
    """Images on their way through the model."""

    def __init__(self, model: Model, folder: PredictionFolder, options: PredictOptions) -> None:
        """Nothing starts yet."""
        self._model = model
        self._folder = folder
        self._options = options
        self._workers = options.workers or usable_processors()
        self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="segconf")
        self._reading: deque[tuple[Future[_Decoded | _Failed | None], int]] = deque()
        self._finishing: set[Future[CaseRow | None]] = set()
        self._weights: dict[Future[CaseRow | None], int] = {}
        self._in_flight = 0

    def run(self, sources: Sequence[Source], on_row: OnRow, on_progress: Progress | None) -> None:
        """Predict the images that are not complete yet; broken ones do not stop the others.

        A file is looked at when its turn comes: the first result does not wait for all of them.
        Rows are handed out as they are written, and none is kept.
        """
        waiting = ((source, _pixel_count(source)) for source in sources)
        following = next(waiting, None)
        done = 0
        alone = self._takes_images_alone(sources)
        with self._model.single_threaded() if alone else nullcontext(), self._closing():
            while following is not None or self._reading or self._finishing:
                while following is not None and self._has_room(following[1]):
                    self._begin(*following, alone=alone)
                    following = next(waiting, None)
                if self._reading:
                    self._predict()
                finished = self._collect(block=not self._reading)
                done += len(finished)
                for row in filter(None, finished):
                    on_row(row)
                if on_progress is not None:
                    on_progress(done, len(sources))

    def _begin(self, source: Source, weight: int, *, alone: bool) -> None:
        self._in_flight += weight
        if alone:
            self._follow(self._pool.submit(self._whole, source), weight)
        else:
            self._reading.append((self._pool.submit(self._read, source), weight))

    def _takes_images_alone(self, sources: Sequence[Source]) -> bool:
        pictures = not any(format_of(source.path).has_slices for source in sources)
        return (
            pictures
            and self._model.batch_size == 1
            and self._model.serves_threads
            and not self._options.tile
        )

    @contextmanager
    def _closing(self) -> Iterator[None]:
        """Whatever happens, what has begun is finished and what has not is dropped."""
        try:
            yield
        finally:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _follow(self, future: Future[CaseRow | None], weight: int) -> None:
        self._weights[future] = weight
        self._finishing.add(future)

    def _has_room(self, pixels: int) -> bool:
        count = len(self._reading) + len(self._finishing)
        if count == 0:
            return True
        enough = max(self._workers + _SPARE_IMAGES, 2 * self._model.batch_size)
        return count < enough and self._in_flight + pixels <= PIXELS_IN_FLIGHT

    def _predict(self) -> None:
        """Run the network on the next images and hand them on."""
        count = min(self._model.batch_size, len(self._reading))
        taken = [self._reading.popleft() for _ in range(count)]
        read = [(future.result(), weight) for future, weight in taken]
        outputs = self._outputs([item for item, _ in read if isinstance(item, _Decoded)])
        for item, weight in read:
            future: Future[CaseRow | None]
            if item is None:
                future = self._pool.submit(lambda: None)
            elif isinstance(item, _Failed):
                future = self._pool.submit(self._fail, item)
            elif self._options.tile:
                # Tiles are not what was trained on: the score is that of the whole frame.
                inputs = self._model.network_input(item.image)
                output = self._model.grid_output(inputs.pixels, inputs.feature_pixels)
                maps = self._maps(item, None)
                score = float(output.ood_scores.mean())
                future = self._pool.submit(self._write, item, maps, score)
            else:
                future = self._pool.submit(self._finish, item, outputs.pop(0))
            self._follow(future, weight)

    def _outputs(self, decoded: list[_Decoded]) -> list[GridOutput]:
        """Logits (D, K, h, w) and out-of-distribution scores (D,) of each image."""
        inputs = [item.inputs for item in decoded if item.inputs is not None]
        if not inputs:
            return []
        finer = [one.feature_pixels for one in inputs if one.feature_pixels is not None]
        batch = _as_batch([one.pixels for one in inputs])
        output = self._model.grid_output(batch, _as_batch(finer) if finer else None)
        found, start = [], 0
        for one in inputs:
            own = slice(start, start + len(one.pixels))
            found.append(GridOutput(output.logits[own], output.ood_scores[own]))
            start += len(one.pixels)
        return found

    def _collect(self, *, block: bool) -> list[CaseRow | None]:
        """Rows of the images whose files are written; None for those that were before."""
        if not self._finishing:
            return []
        done, self._finishing = wait(
            self._finishing, timeout=None if block else 0, return_when=FIRST_COMPLETED
        )
        self._in_flight -= sum(self._weights.pop(future) for future in done)
        return [future.result() for future in done]

    def _whole(self, source: Source) -> CaseRow | None:
        """From the file to the results, in one thread."""
        item = self._read(source)
        if item is None:
            return None
        if isinstance(item, _Failed):
            return self._fail(item)
        return self._finish(item, self._outputs([item])[0])

    def _read(self, source: Source) -> _Decoded | _Failed | None:
        """The image; None where its results are complete and the job continues another."""
        if source.problem:
            return _Failed(source, source.problem)
        try:
            content = image_hash(source.path)
            if self._options.skip_existing and is_complete(self._folder, source.case, content):
                return None
            image = self._model.read(source.path)
            remarks = _remarks(source, image)
        except DataError as error:
            return _Failed(source, str(error))
        inputs = None if self._options.tile else self._model.network_input(image)
        return _Decoded(source, image, content, remarks, inputs)

    def _maps(self, item: _Decoded, logits: FloatArray | None) -> Maps:
        options = self._options
        return self._model.maps(
            item.image,
            logits=logits,
            tile=options.tile,
            probabilities=options.save_probabilities,
        )

    def _finish(self, item: _Decoded, output: GridOutput) -> CaseRow:
        if not np.isfinite(output.logits).all():
            return self._fail(_not_finite(item.source))
        return self._write(item, self._maps(item, output.logits), float(output.ood_scores.mean()))

    def _write(self, item: _Decoded, maps: Maps, ood_score: float) -> CaseRow:
        if not math.isfinite(maps.foreground):
            return self._fail(_not_finite(item.source))
        scale = self._model.scale
        row = summarize(
            with_geometry(_row(item.source, *item.image.spatial_shape[-2:]), item.image),
            maps,
            shaded=scale.shaded,
            ood_score=ood_score,
        )
        expected = self._model.calibration.expected_dice_of(row.expected_dice)
        row = replace(
            self._model.with_flags(replace(row, expected_dice=expected), item.remarks),
            image_sha256=item.sha256,
            mask_sha256=hashlib.sha256(np.ascontiguousarray(maps.mask).data).hexdigest(),
        )
        style = self._options.style
        write_case(self._folder, row, item.image, maps, scale=scale, style=style)
        return row

    def _fail(self, item: _Failed) -> CaseRow:
        failed = _row(item.source, 0, 0)
        row = replace(failed, flags=(item.flag,), error=printable(item.reason))
        write_failure(self._folder, row)
        return row


def _as_batch(images: list[ByteArray]) -> ByteArray:
    """Images (S, h, w, C) of several files as one batch (B, h, w, C)."""
    return images[0] if len(images) == 1 else np.concatenate(images)


def _row(source: Source, height: int, width: int) -> CaseRow:
    return CaseRow(source.case, source.file, height, width, group=source.group)


def _not_finite(source: Source) -> _Failed:
    reason = f"{source.path}: the network's output for this image is not finite."
    return _Failed(source, reason, NOT_FINITE)


def _pixel_count(source: Source) -> int:
    """Pixels of a file by its header; 0 where it cannot be read, which `_read` will report."""
    try:
        header = read_header(source.path)
    except DataError:
        return 0
    return header.size[0] * header.size[1] * header.slices


def _remarks(source: Source, image: Image) -> tuple[str, ...]:
    """What is unusual about a file that was read, in words; a reason to refer it, or notes."""
    height, width = image.spatial_shape[-2:]
    found = [f"{TOO_FEW_PIXELS}: {height} x {width}"] if min(height, width) < TOO_SMALL else []
    remarks = format_of(source.path).remarks(source.path, len(image.pixels))
    return (*found, *(f"{NOTE}{remark}" for remark in remarks))
