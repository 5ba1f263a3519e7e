"""`segconf demo`: the pretrained model, then every step on synthetic images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.compare import show_comparison
from segconf_cli.display import results
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from segconf.inference.predict import PredictionReport


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything it makes.")] = Path("demo"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Only predict with the pretrained model; train nothing."),
    ] = False,
) -> None:
    """Predict with the pretrained model; then train, evaluate and compare, offline, in minutes.

    All images are synthetic dermoscopy.

    Example: segconf demo --out demo
    """
    from segconf.demo_tour import run_demo, run_quick_demo
    from segconf_cli.display import counting
    from segconf_cli.live import live_view

    started = time.monotonic()
    with counting() as progress:
        report = run_quick_demo(out, on_progress=progress)
    _show_pretrained(report)
    if quick:
        return
    with live_view() as listener:
        result = run_demo(out, listener=listener, on_progress=listener.on_prepare)
    show_comparison(result.comparison)
    record(
        comparison_folder=result.comparison_folder,
        figure=result.figure,
        review_page=result.review_page,
        model_page=result.model_page,
    )
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    results().print(
        f"Done in {minutes} min {seconds} s. Two short trainings on synthetic images: a tour, "
        "not a result.\n"
        f"Tables and curves: {result.comparison_folder}\n"
        f"Image, mask, confidence and errors side by side: {result.figure}\n"
        f"Open this page in a browser: {result.review_page}",
        highlight=False,
    )
    if result.model_page is None:
        words = f"No page that segments in the browser: {result.no_model_page}"
    else:
        words = f"This page segments images that you drop on it: {result.model_page}"
    results().print(words, highlight=False)


def _show_pretrained(report: PredictionReport) -> None:
    """Where the page of the pretrained model is, and why its images are flagged."""
    record(pretrained_page=report.folder / "review.html")
    flagged = report.out_of_distribution
    results().print(
        f"The pretrained model predicted {len(report.cases)} synthetic images. It was trained on "
        "real dermoscopy,\nso they are out of distribution for it: "
        f"{flagged} of them are flagged for that, as they should be.\n"
        f"Open this page in a browser: {report.folder / 'review.html'}",
        highlight=False,
    )
