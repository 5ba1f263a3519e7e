"""Export: overlays again from a prediction folder, in another style, size or format."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from segconf import __version__
from segconf.errors import ConfigError, DataError
from segconf.files import make_folder, replacing, write_text
from segconf.images.encoding import write_png
from segconf.images.image_format import format_of
from segconf.images.io import read_image
from segconf.images.types import Image
from segconf.outputs import check_output
from segconf.overlays.layers import Scale
from segconf.overlays.overlay import Style, overlay
from segconf.overlays.view import MAX_SIDE, View
from segconf.results.prediction_folder import PredictionFolder, select_rows
from segconf.results.rows import CaseRow
from segconf.results.run_record import RunRecord
from segconf.review.pictures import case_scale, write_jpeg
from segconf.review.sheet import case_sheet

Format = Literal["png", "jpg", "pdf"]


DOCUMENT = "cases.pdf"
RECORD = "export.json"
"""Says what the pictures of a folder were made of, and that all of them are an export."""


_DOTS_PER_INCH = 150


Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What the pictures look like; by default like those that `predict` writes.

    Attributes:
        style: of the overlays; that of the prediction when not given. A page of a pdf shows
            contour and heat map, and has a size of its own.
        format: png and jpg are one file per case, pdf one document with a page per case.
        shade: pixels that are wrong more than 1 time in so many; as predicted when not given.
        max_side: longest side of the image; 1600 when not given.
        images: where the images are now, if not where they were predicted.
    """

    style: Style | None = None
    format: Format = "png"
    shade: int | None = None
    max_side: int | None = None
    images: Path | None = None


def export(
    maps: Path,
    out: Path,
    *,
    options: ExportOptions | None = None,
    names: Sequence[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Render the cases of a prediction folder; returns the files written.

    Args:
        maps: folder that `predict` wrote.
        out: folder for the pictures.
        options: what they look like.
        names: cases to render; all when empty.
        on_progress: is told how many cases of how many are done.
    """
    options = options or ExportOptions()
    if options.format == "pdf":
        _check_page(options)
    folder = PredictionFolder(maps)
    record = folder.record()
    if record.class_names:
        raise DataError(f"{maps}: holds labels, without overlays to export. Look at review.html.")
    rows = select_rows(folder, names)
    if not rows:
        raise DataError(f"{maps}: no case has been predicted here, so there is nothing to export.")
    scale = _scale(record, options.shade)
    style: Style = options.style or record.values["options"]["style"]
    cases = (_read(folder, row, record, options.images) for row in rows)
    check_output(out, inputs=[maps], mark=RECORD)
    about = {"segconf": __version__, "prediction": record.id, "style": style}
    write_text(out / RECORD, json.dumps(about, indent=1) + "\n")
    report = on_progress or (lambda _done, _total: None)
    if options.format == "pdf":
        path = out / DOCUMENT
        with replacing(path) as temporary:
            for number, case in enumerate(cases, 1):
                own = case_scale(scale, case.row)
                maps_of_case = (case.mask, case.levels)
                regions = folder.read_regions(case.row) if own.contours else None
                scales = (own, record.scale)
                page = case_sheet(
                    case.row, case.image, maps_of_case, scales, case.view, regions=regions
                )
                page.save(temporary, "pdf", append=number > 1, resolution=_DOTS_PER_INCH)
                report(number, len(rows))
        return [path]
    written: list[Path] = []
    for number, case in enumerate(cases, 1):
        own = case_scale(scale, case.row)
        picture = overlay(
            case.image,
            case.mask,
            case.levels,
            style=style,
            scale=own,
            regions=folder.read_regions(case.row) if own.contours else None,
            view=replace(case.view, max_side=options.max_side or MAX_SIDE),
        )
        path = out / f"{case.row.case}.{options.format}"
        make_folder(path.parent)
        (write_png if options.format == "png" else write_jpeg)(path, picture)
        written.append(path)
        report(number, len(rows))
    return written


def _check_page(options: ExportOptions) -> None:
    """Refuse what a page of a document has no place for."""
    for name, value in (("style", options.style), ("max_side", options.max_side)):
        if value is not None:
            raise ConfigError(
                f"{name} = {value}: a page of a pdf shows contour and heat map at its own size. "
                "Leave it out, or choose png or jpg."
            )


@dataclass(frozen=True, slots=True)
class _Case:
    """A case with its pixels (C, H, W), mask and confidence levels (H, W)."""

    row: CaseRow
    image: Pixels
    mask: Pixels
    levels: NDArray[np.uint16]
    view: View


def _read(folder: PredictionFolder, row: CaseRow, record: RunRecord, images: Path | None) -> _Case:
    image = _image(row, record, images)
    mask, levels = folder.read_slice(row)
    height, width = image.spatial_shape
    if mask.shape != (height, width):
        raise DataError(
            f"{row.file}: the image is {height} x {width}, its maps are "
            f"{mask.shape[0]} x {mask.shape[1]}. Give the images that were predicted."
        )
    return _Case(row, image.pixels, mask, levels, View.of(image))


def _scale(record: RunRecord, times: int | None) -> Scale:
    scale = record.scale
    if times is None:
        return scale
    known = [step.times for step in scale.steps]
    if times not in known:
        raise DataError(
            f"shade = {times}: expected one of {', '.join(map(str, known))}, the error "
            "rates that this model knows."
        )
    return scale.shading(times)


def _image(row: CaseRow, record: RunRecord, images: Path | None) -> Image:
    """The slice that the overlay shows."""
    root = images or record.images
    path = root if root.is_file() else root / row.file
    if not all(file.exists() for file in format_of(path).files(path)):
        raise DataError(f"{path}: no such file. Say where the images are now.")
    reading = record.reading
    window = reading["window"]
    return read_image(
        path,
        channels=reading["channels"],
        max_pixels=reading["max_pixels"],
        window=None if window is None else (window[0], window[1]),
        slice_index=row.slice if row.is_volume else None,
    )
