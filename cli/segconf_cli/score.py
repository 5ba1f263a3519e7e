"""`segconf score`: the same metrics for maps that any other tool wrote."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from segconf_cli.display import counted, counting, messages, results
from segconf_cli.outcome import record
from segconf_cli.report_tables import show_report


def score(
    predictions: Annotated[Path, typer.Argument(help="Folder of probability or confidence maps.")],
    masks: Annotated[Path, typer.Argument(help="Folder of masks of the same names.")],
    classes: Annotated[int, typer.Option(min=2, max=255, help="Number of classes.")] = 2,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report.", show_default="none")
    ] = None,
    allow_quantized: Annotated[
        bool, typer.Option("--allow-quantized", help="Accept confidence maps of 8 bits.")
    ] = False,
    ignore_255: Annotated[
        bool,
        typer.Option(
            "--ignore-255", help="Leave out mask pixels of 255 (with more than two classes)."
        ),
    ] = False,
) -> None:
    """Measure predictions of any tool: .npz, .npy, NIfTI, or the maps of segconf predict.

    Example: segconf score nnunet_predictions masks --out report
    """
    from segconf.evaluation.score import score as score_folder

    with counting() as progress:
        scored = score_folder(
            predictions,
            masks,
            classes=classes,
            out=out,
            allow_quantized=allow_quantized,
            ignore_255=ignore_255,
            on_progress=progress,
        )
    show_report(scored.report)
    record(folder=out, aurc_bounds=scored.aurc_bounds, nll_bounds=scored.nll_bounds)
    missing = scored.report.about["masks_without_prediction"]
    if isinstance(missing, list) and missing:
        messages().print(
            f"note: {counted(len(missing), 'mask')} without a prediction, such as {missing[0]}",
            highlight=False,
        )
    if scored.aurc_bounds is not None:
        low, high = scored.aurc_bounds
        results().print(
            f"The maps hold {scored.report.about['levels']} levels of confidence, so pixels of one "
            f"level are tied and the ranking is approximate: AURC lies between {1e3 * low:.3f} and "
            f"{1e3 * high:.3f} (x 10^3), whatever their order.",
            highlight=False,
        )
    if scored.nll_bounds is not None:
        results().print(_nll_words(*scored.nll_bounds), highlight=False)
    if out is not None:
        messages().print(f"Report: {out}", highlight=False)


def _nll_words(low: float, high: float) -> str:
    bounds = f"between {10 * low:.3f} and {10 * high:.3f}"
    if math.isinf(high):
        bounds = f"at least {10 * low:.3f}"
    return f"So is the NLL: by what is rounded to these levels it is {bounds} (x 10)."
