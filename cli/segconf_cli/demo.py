"""`segconf demo`: every step on synthetic images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from segconf_cli.compare import show_comparison
from segconf_cli.display import results


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything it makes.")] = Path("demo"),
) -> None:
    """Train, evaluate, compare and predict on synthetic dermoscopy, offline, in minutes.

    Example: segconf demo --out demo
    """
    from segconf.demo_tour import run_demo
    from segconf_cli.live import live_view

    started = time.monotonic()
    with live_view() as listener:
        result = run_demo(out, listener=listener, on_progress=listener.on_prepare)
    show_comparison(result.comparison)
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    results().print(
        f"Done in {minutes} min {seconds} s. Two short trainings on synthetic images: a tour, "
        "not a result.\n"
        f"Tables and curves: {result.comparison_folder}\n"
        f"Image, mask, confidence and errors side by side: {result.figure}\n"
        f"Open this page in a browser: {result.review_page}",
        highlight=False,
    )
