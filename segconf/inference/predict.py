"""The entry: predict images into a folder, alone or as one of several processes."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from segconf.inference.model import Model, load_model
from segconf.inference.pipeline import Job, PredictOptions, Progress
from segconf.inference.record import claim, describe_run
from segconf.inference.sources import Shard, Source, Sources, find_images
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow, read_row
from segconf.review.page import assemble

_PATIENCE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class PredictionReport:
    """How a job went in this process.

    Attributes:
        folder: the results.
        rows: images of this process that were predicted now, and those that failed.
        skipped: images that were there already.
    """

    folder: Path
    rows: tuple[CaseRow, ...]
    skipped: int

    @property
    def broken(self) -> tuple[CaseRow, ...]:
        """Images that could not be read."""
        return tuple(row for row in self.rows if row.error)


def predict(
    model: Model | Path | str,
    images: Sources | Path | str | Sequence[Path | str],
    out: Path | str,
    *,
    options: PredictOptions | None = None,
    shard: Shard | None = None,
    on_progress: Progress | None = None,
) -> PredictionReport:
    """Write masks, confidence maps, overlays, `cases.csv` and the review page of images.

    Under torchrun every process takes its part of the images, within `shard`. Shards write no
    file in common but `cases.csv` and `review.html`, which are complete when the last shard is.

    Args:
        model: from `load_model`, or a run folder or weights file.
        images: from `find_images`, or a folder, an image file, or several of them.
        out: the prediction folder.
        options: what is written and how.
        shard: this process's part of a job that several processes were started for.
        on_progress: is told how many images of how many are done.
    """
    options = options or PredictOptions()
    if not isinstance(model, Model):
        model = load_model(model)
    folder = PredictionFolder(Path(out))
    sources = images if isinstance(images, Sources) else _found(images, exclude=folder.path)
    claim(folder, describe_run(model, sources, options))
    rank = Shard(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    own = rank.own((shard or Shard()).own(sources.items))
    todo = [source for source in own if not (options.skip_existing and _is_done(folder, source))]
    with _meeting_at_the_end(rank):
        rows = Job(model, folder, options).run(todo, on_progress)
    if rank.index == 0:
        assemble(folder)
    rows.sort(key=lambda row: row.case)
    return PredictionReport(folder.path, tuple(rows), len(own) - len(todo))


def _found(images: Path | str | Sequence[Path | str], *, exclude: Path) -> Sources:
    given = [images] if isinstance(images, Path | str) else images
    return find_images([Path(one) for one in given], exclude=exclude)


def _is_done(folder: PredictionFolder, source: Source) -> bool:
    path = folder.row(source.case)
    if not path.is_file():
        return False
    row = read_row(path)
    files = folder.outputs(row.case, row.map_suffix)
    return not row.error and all(file.is_file() for file in files)


@contextmanager
def _meeting_at_the_end(rank: Shard) -> Iterator[None]:
    """Let every process wait for the others: torchrun ends all of them when one fails."""
    if rank.count == 1:
        yield
        return
    dist.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()
