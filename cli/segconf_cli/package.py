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
    PAGE = "page"


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
    runtime: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER|TGZ",
            help="For a page: the npm package onnxruntime-web. By default npm gets it, once.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Package a trained network with the preparation of its input, for use without segconf.

    A page is one HTML file that segments in the browser, without a server and without the network.

    Example: segconf package runs/isic-consistency-250-seed0 --format onnx --out model.onnx
    """
    from segconf.errors import ConfigError
    from segconf.packaging.package import package_monai, package_onnx

    if runtime is not None and format is not PackageFormat.PAGE:
        raise ConfigError("--runtime: is for a page. Add --format page, or leave it out.")
    match format:
        case PackageFormat.PAGE:
            _page(run, out, runtime)
            return
        case PackageFormat.ONNX:
            written = package_onnx(run, out)
        case PackageFormat.MONAI:
            written = package_monai(run, out)
    record(path=written.path, bytes=written.size, difference=written.difference)
    results().print(
        f"Wrote {written.path} ({written.size / 1e6:.1f} MB). Probabilities differ from those of "
        f"the run by at most {written.difference:.1g} (research use, not a medical device).",
        highlight=False,
    )


def _page(run: Path, out: Path, runtime: Path | None) -> None:
    from segconf.packaging.browser_page import package_page

    written = package_page(run, out, runtime=runtime)
    record(
        path=written.path,
        bytes=written.size,
        bits=written.bits,
        equal_pixels=written.equal,
        fingerprint=written.fingerprint,
    )
    results().print(
        f"Wrote {written.path} ({written.size / 1e6:.1f} MB, weights of {written.bits} bits). "
        f"Masks are those of the run in at least {written.equal:.2%} of the pixels of an image. "
        f"Open it in a browser; its footer shows {written.fingerprint[:16]} (research use, not a "
        "medical device).",
        highlight=False,
    )
