"""`segconf predict`: masks, confidence maps, overlays and a review page for new images."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counted, counting, messages, results, warn
from segconf_cli.options import Device, MapFormat, Saved, Style
from segconf_cli.outcome import next_step, record

if TYPE_CHECKING:
    from segconf.config.segments import SegmentCode
    from segconf.inference.predict import PredictionReport
    from segconf.inference.sources import Sources

SOME_IMAGES_BROKEN = 3
SHOWN_PROBLEMS = 10
MOST_AT_ONCE = 256
"""Images in a batch, and threads: more would fill the memory and win nothing."""


def predict(
    images: Annotated[
        list[Path],
        typer.Argument(help="A folder, image files, or a .txt list of paths.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.", show_default=False)],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Run folder, weights file, or name of a pretrained model.",
            show_default="newest finished run under runs/, else the pretrained model",
            rich_help_panel="Network",
        ),
    ] = None,
    style: Annotated[
        Style, typer.Option(help="How overlays look.", rich_help_panel="Output")
    ] = Style.CONTOUR,
    tile: Annotated[
        bool,
        typer.Option(
            "--tile",
            help="Slide the network over the native resolution.",
            rich_help_panel="Network",
        ),
    ] = False,
    map_format: Annotated[
        MapFormat | None,
        typer.Option(
            "--format",
            help="Format of masks and maps.",
            show_default="png, nifti for volumes",
            rich_help_panel="Output",
        ),
    ] = None,
    save: Annotated[
        list[Saved] | None,
        typer.Option(help="Also write a map of every class.", rich_help_panel="Output"),
    ] = None,
    dicom: Annotated[
        bool,
        typer.Option(
            "--dicom",
            help="Also write DICOM objects: SEG, Parametric Map, secondary capture.",
            rich_help_panel="Output",
        ),
    ] = False,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Codes of the classes in DICOM objects (JSON).",
            show_default="anatomical structures",
            rich_help_panel="Output",
        ),
    ] = None,
    identify: Annotated[
        bool,
        typer.Option(
            "--identify",
            help="Name DICOM images after their files, which may tell the patient.",
            rich_help_panel="Output",
        ),
    ] = False,
    skip_existing: Annotated[
        bool,
        typer.Option(
            "--skip-existing", help="Continue an interrupted job.", rich_help_panel="Large jobs"
        ),
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Shard I of N of the images, from 1.", rich_help_panel="Large jobs"
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_AT_ONCE,
            help="Images per batch.",
            show_default="1 on a CPU, else 16; 16 to 256 for labels",
            rich_help_panel="Speed",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_AT_ONCE,
            help="Threads that read and write.",
            show_default="processors",
            rich_help_panel="Speed",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Predict masks and confidence maps, or labels, with a page to review them.

    Example: segconf predict images/ --out maps/
    """
    from segconf.config.segments import read_codes
    from segconf.errors import ConfigError
    from segconf.inference.choice import choose_model
    from segconf.inference.label_job import FOR_MASKS
    from segconf.inference.model import load_model
    from segconf.inference.pipeline import PredictOptions
    from segconf.inference.predict import predict as run
    from segconf.inference.sources import Shard, find_sources

    if segments is not None and not dicom:
        raise ConfigError("--segments: codes are for DICOM objects. Add --dicom, or leave it out.")
    chosen_shard = Shard.parse(shard) if shard else None
    options = PredictOptions(
        tile=tile,
        style=style.value,
        save_probabilities=dicom or Saved.PROBABILITIES in (save or []),
        map_format=None if map_format is None else map_format.value,
        skip_existing=skip_existing,
        workers=workers,
    )
    sources = find_sources(images, exclude=out, identify=identify)
    if dicom:
        from segconf.packaging.dicom_results import check_sources

        check_sources(sources)
    chosen = choose_model(checkpoint)
    if checkpoint is None:
        text = f"model: {chosen.name} ({chosen.reason})"
        messages().print(text, highlight=False)
    if sources.left_out:
        example = "" if sources.are_anonymous else f" ({sources.left_out[0].name})"
        note = f"note: left out {counted(len(sources.left_out), 'file')} without an image{example}"
        messages().print(note, highlight=False)
    model = load_model(chosen, device=device, batch_size=batch_size)
    if model.config.data.task == "classification":
        given = {"dicom": dicom, "tile": tile, "format": bool(map_format), "save": bool(save)}
        for name in (name for name, is_given in given.items() if is_given):
            raise ConfigError(f"--{name}: {FOR_MASKS}")
    codes = None if segments is None else read_codes(segments, model.config.model.classes)
    with counting() as progress:
        report = run(
            model,
            sources,
            out,
            options=options,
            shard=chosen_shard,
            on_progress=lambda done, total: progress("images", done, total),
        )
    record(model=chosen.name)
    _summarize(report)
    if model.detector is not None:
        _count_out_of_distribution(report, model.detector.false_alarm_rate)
    written = not dicom or _write_dicom(report, sources, codes)
    if not model.config.has_table and (report.predicted or report.skipped):
        next_step(f"segconf review {shlex.quote(str(out))} --serve")
    if report.failed or not written:
        raise typer.Exit(SOME_IMAGES_BROKEN)


def _write_dicom(
    report: PredictionReport, sources: Sources, codes: tuple[SegmentCode, ...] | None
) -> bool:
    """Write the DICOM objects and say what was written; whether all were."""
    from segconf.packaging.dicom_results import unwritten, write_dicom
    from segconf.results.prediction_folder import PredictionFolder

    folder = PredictionFolder(report.folder)
    rows = unwritten(folder, sources, report.cases)
    written = write_dicom(folder, rows, segments=codes)
    objects = counted(written.objects, "DICOM object")
    verb = "names" if written.objects == 1 else "name"
    text = f"Wrote {objects} to {written.folder}, which {verb} the patient."
    results().print(text, highlight=False)
    record(dicom={"folder": written.folder, "objects": written.objects})
    for problem in written.problems[:SHOWN_PROBLEMS]:
        warn(f"  {problem}")
    return not written.problems


def _count_out_of_distribution(report: PredictionReport, false_alarms: float) -> None:
    found = report.out_of_distribution
    record(out_of_distribution=found)
    if found:
        results().print(
            f"{found} {'are' if found > 1 else 'is'} out of distribution, as were "
            f"{false_alarms:.1%} of the validation images: their confidence means little.",
            highlight=False,
        )


def _summarize(report: PredictionReport) -> None:
    from segconf.results.label_rows import TABLE as LABELS_TABLE

    predicted, referred, failed = report.predicted, report.referred, report.failed
    broken = report.read(failed[:SHOWN_PROBLEMS])
    skipped = f", {report.skipped} were there already" if report.skipped else ""
    page, table = report.folder / "review.html", report.folder / LABELS_TABLE
    files = [page, table, report.folder / "least_sure.png"] if report.has_labels else [page]
    places = ", ".join(str(file) for file in files if file.is_file())
    verb = "is" if referred == 1 else "are"
    text = "No image was predicted."
    if predicted or skipped:
        text = (
            f"Predicted {counted(predicted, 'image')}{skipped}; {referred} {verb} referred to an "
            f"expert.\nLook at {places} (research use, not a medical device)."
        )
    results().print(text, highlight=False)
    record(
        folder=report.folder,
        **({"review_page": page} if page.is_file() else {}),
        **({"predictions": table} if report.has_labels else {}),
        predicted=predicted,
        skipped=report.skipped,
        referred=referred,
        broken=[{"case": row.case, "error": row.error} for row in report.broken],
    )
    if not broken:
        return
    shown = [f"  {row.error}" for row in broken]
    more = len(failed) - len(shown)
    place = LABELS_TABLE if report.has_labels else "cases.csv"
    rest = [f"  and {more} more, named in {place}"] if more else []
    warn("\n".join([f"{counted(len(failed), 'image')} could not be read:", *shown, *rest]))
