"""`segconf export`: pictures for slides and conferences, from a prediction folder."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from segconf_cli.display import counting, results
from segconf_cli.options import MapsPath, Style
from segconf_cli.outcome import record


class Format(StrEnum):
    """Files of an export."""

    PNG = "png"
    JPG = "jpg"
    PDF = "pdf"


def export(
    maps: MapsPath,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", show_default=False)],
    images: Annotated[
        Path | None, typer.Option(help="Where the images are now.", show_default="as predicted")
    ] = None,
    style: Annotated[
        Style | None, typer.Option(help="How overlays look.", show_default="as predicted")
    ] = None,
    format: Annotated[Format, typer.Option(help="pdf has a page per case.")] = Format.PNG,  # noqa: A002
    case: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A case; all when not given.")
    ] = None,
    shade: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Shade what is wrong more than 1 time in N.",
            show_default="as predicted",
        ),
    ] = None,
    max_side: Annotated[
        int | None, typer.Option(min=64, help="Longest side of the image.", show_default="1600")
    ] = None,
) -> None:
    """Render overlays again from saved maps, without the model.

    Example: segconf export maps/ --out slides/ --style side-by-side --format jpg
    """
    from segconf.review.export import ExportOptions
    from segconf.review.export import export as run

    options = ExportOptions(
        style=style.value if style else None,
        format=format.value,
        shade=shade,
        max_side=max_side,
        images=images,
    )
    with counting() as progress:
        written = run(
            maps,
            out,
            options=options,
            names=case or [],
            on_progress=lambda done, total: progress("rendering", done, total),
        )
    record(folder=out, files=written)
    names = str(written[0]) if len(written) == 1 else f"{len(written)} pictures to {out}"
    results().print(f"Wrote {names}.", highlight=False)
