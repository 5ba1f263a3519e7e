"""The entry: predict images into a folder, and `run.json`, which says how."""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from segconf import __version__
from segconf.errors import ConfigError, DataError
from segconf.images.image_format import MAP_SUFFIXES, MapFormat, format_of
from segconf.images.naming import printable
from segconf.inference.label_job import LabelJob, check_kind, check_label_options
from segconf.inference.least_sure import FILE_NAME, write_least_sure
from segconf.inference.model import Model, load_model
from segconf.inference.pipeline import Job, PredictOptions, Progress
from segconf.inference.sources import Shard, Sources, find_sources
from segconf.locks import locked
from segconf.outputs import check_output
from segconf.overlays.overlay import NOTICE
from segconf.results.label_rows import TABLE, LabelRow, read_label_table
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import OUT_OF_DISTRIBUTION, CaseRow
from segconf.results.run_record import RunRecord
from segconf.review.page import assemble

_PATIENCE = timedelta(days=30)


@dataclass(slots=True)
class PredictionReport:
    """How a job went in this process; rows stay on the disk.

    Attributes:
        folder: the results.
        cases: names of the images that this process predicted now, or could not predict.
        failed: names of those that it could not.
        referred: how many of the predicted ones an expert should see.
        out_of_distribution: how many of them are.
        skipped: how many images were there already.
        class_names: of a classifier; none where masks are predicted.
    """

    folder: Path
    cases: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    referred: int = 0
    out_of_distribution: int = 0
    skipped: int = 0
    class_names: tuple[str, ...] = ()

    @property
    def has_labels(self) -> bool:
        """Whether labels were predicted, not masks."""
        return bool(self.class_names)

    @property
    def predicted(self) -> int:
        """How many images were predicted now."""
        return len(self.cases) - len(self.failed)

    @property
    def rows(self) -> tuple[CaseRow | LabelRow, ...]:
        """Rows of the cases, read from the folder."""
        return self.read(self.cases)

    @property
    def broken(self) -> tuple[CaseRow | LabelRow, ...]:
        """Rows of the images that could not be predicted."""
        return self.read(self.failed)

    def read(self, cases: Sequence[str]) -> tuple[CaseRow | LabelRow, ...]:
        """Rows of some cases."""
        if self.has_labels:
            table = read_label_table(self.folder / TABLE, self.class_names)
            return tuple(table[case] for case in cases)
        return tuple(PredictionFolder(self.folder).read_rows(cases))

    def add(self, row: CaseRow | LabelRow) -> None:
        """Count a case."""
        self.cases.append(row.case)
        if row.error:
            self.failed.append(row.case)
            return
        self.referred += row.is_referred
        self.out_of_distribution += OUT_OF_DISTRIBUTION in row.flags


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

    A classifier writes labels instead: `predictions.csv`, and of images `least_sure.png` and the
    page.

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
    folder = PredictionFolder(Path(out), options.map_format)
    sources = images if isinstance(images, Sources) else _found(images, exclude=folder.path)
    check_kind(model, sources)
    _check_map_format(sources, options.map_format)
    if model.config.data.task == "classification":
        check_label_options(options)
    with locked(folder.path, wait=True):  # other shards may begin at the same time
        claim(folder, describe_run(model, sources, options), inputs=sources.folders)
    rank = Shard(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    own = rank.own((shard or Shard()).own(sources.items))
    report = PredictionReport(folder.path, class_names=model.config.data.class_names)
    if report.has_labels:
        # Every process adds its own to the table, so none waits for the others.
        skip, workers = options.skip_existing, options.workers
        job = LabelJob(model, folder, skip_existing=skip, workers=workers)
        job.run(own, report.add, on_progress)
        if not model.config.has_table:
            _write_sheet(model, folder, sources)
            assemble(folder)
    else:
        with _meeting_at_the_end(rank):
            Job(model, folder, options).run(own, report.add, on_progress)
        if rank.index == 0:
            assemble(folder)
    report.cases.sort()
    report.failed.sort()
    report.skipped = len(own) - len(report.cases)
    return report


def _write_sheet(model: Model, folder: PredictionFolder, sources: Sources) -> None:
    """Draw the least sure of all images that are predicted so far, also by other processes."""
    with locked(folder.path, wait=True):
        write_least_sure(model, folder.label_rows(), sources.items, folder.path / FILE_NAME)


def _found(images: Path | str | Sequence[Path | str], *, exclude: Path) -> Sources:
    given = [images] if isinstance(images, Path | str) else images
    return find_sources([Path(one) for one in given], exclude=exclude)


def _check_map_format(sources: Sources, chosen: MapFormat | None) -> None:
    """Refuse pictures as the results of volumes, before anything is written.

    Raises:
        ConfigError: PNG is asked for, and an image is a volume.
    """
    if chosen is None:
        return
    for source in sources.items:
        own = format_of(source.path)
        if own.has_slices and not format_of(f"a{MAP_SUFFIXES[chosen]}").has_slices:
            raise ConfigError(
                f"{source.file}: {own.name} files can hold volumes, whose masks and maps are not "
                f"written as {chosen}. Leave the format out, or predict such images apart."
            )


@contextmanager
def _meeting_at_the_end(rank: Shard) -> Iterator[None]:
    """Let every process wait for the others: torchrun ends all of them when one fails."""
    if rank.count == 1:
        yield
        return
    import torch.distributed as dist

    from segconf.processes import default_group

    with default_group("gloo", timeout=_PATIENCE):
        yield
        dist.barrier()


PACKAGES = ("numpy", "pillow", "nibabel")


_SAME = ("model", "confidence", "contours", "out_of_distribution", "reading", "options", "images")


def describe_run(model: Model, sources: Sources, options: PredictOptions) -> RunRecord:
    """The record of a job; the same for all of its parts."""
    config, scale, detector = model.config, model.scale, model.detector
    threshold = model.calibration.threshold
    values: dict[str, Any] = {
        "notice": NOTICE,
        "segconf": __version__,
        "model": {
            "file": str(model.file.absolute()),
            "sha256": model.weights_sha256,
            "method": config.training.method,
            "passes": model.passes,
            "encoder": config.model.encoder,
            "size": list(config.data.size),
            "classes": config.data.class_names,
        },
        "chosen": {"model": model.choice.name, "reason": model.choice.reason},
        "confidence": {
            "scaling": model.scaling,
            "temperature": model.temperature,
            "threshold": None if threshold is None else threshold.confidence,
            "max_risk": None if threshold is None else threshold.max_risk,
            "scale": {name: value for name, value in asdict(scale).items() if name != "contours"},
        },
        "contours": [
            {
                "kind": contour.kind,
                "class": contour.class_index,
                "alpha": contour.alpha,
                "threshold": contour.threshold,
            }
            for contour in scale.contours
        ],
        "order": model.calibration.order,
        "out_of_distribution": None
        if detector is None
        else {
            "threshold": detector.threshold,
            "false_alarm_rate": detector.false_alarm_rate,
            "validation_images": detector.validation_images,
        },
        "images": printable(str(sources.root)),
        "reading": {
            "channels": config.model.channels,
            "max_pixels": config.data.max_pixels,
            "window": config.data.intensity_window,
        },
        "options": {
            "tile": options.tile,
            "style": options.style,
            "save_probabilities": options.save_probabilities,
            "map_format": options.map_format,
        },
        "versions": {
            name: importlib.metadata.version(name) for name in (*model.packages, *PACKAGES)
        },
    }
    values = json.loads(json.dumps(values))  # as it will be read again
    names = [source.file for source in sources.items]
    made_of = json.dumps([{name: values[name] for name in _SAME}, names], sort_keys=True)
    return RunRecord({"id": hashlib.sha256(made_of.encode()).hexdigest()[:16], **values})


def claim(folder: PredictionFolder, record: RunRecord, *, inputs: Sequence[Path] = ()) -> RunRecord:
    """Write `run.json`, or agree with the one that is there and keep its id.

    Args:
        folder: of the job.
        record: what it says about itself.
        inputs: folders of images, in which no new prediction folder may lie.

    Raises:
        DataError: the folder holds the predictions of another model, or of other options.
        FileError: it holds something else, lies among the images, or cannot be written.
    """
    if folder.run_file.exists():
        folder.remove_leftovers()
        before = folder.record()
        different = [name for name in _SAME if before.values.get(name) != record.values[name]]
        if different:
            raise DataError(
                f"{folder.path}: holds predictions made in another way ({', '.join(different)} in "
                "run.json differ). Choose another folder, or remove this one."
            )
        return before
    check_output(folder.path, inputs=inputs)
    folder.write_record(record)
    return record
