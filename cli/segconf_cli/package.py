"""`segconf package`: a run as one file that other programs use."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from segconf_cli.display import results
from segconf_cli.outcome import record


class PackageFormat(StrEnum):
    """Kinds of packages."""

    ONNX = "onnx"
    MONAI = "monai"


def package(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run folder, weights file, or name of a pretrained model.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The file, or the folder of a bundle.", show_default=False)
    ],
    format: Annotated[PackageFormat, typer.Option(help="What is written.")] = PackageFormat.ONNX,  # noqa: A002
) -> None:
    """Package a trained network with the preparation of its input, for use without segconf.

    Example: segconf package runs/isic-consistency-250-seed0 --format onnx --out model.onnx
    """
    from segconf.packaging.package import package_monai, package_onnx

    match format:
        case PackageFormat.ONNX:
            written = package_onnx(run, out)
        case PackageFormat.MONAI:
            written = package_monai(run, out)
    record(path=written.path, bytes=written.size, difference=written.difference)
    results().print(
        f"Wrote {written.path} ({written.size / 1e6:.1f} MB). Probabilities differ from those of "
        f"the run by at most {written.difference:.1g} (research use, not a medical device).",
        highlight=False,
        markup=False,
    )
