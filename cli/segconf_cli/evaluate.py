"""`segconf evaluate`: metrics of segmentation and confidence on a split."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counting, messages, results
from segconf_cli.options import Device, ReportFolder, RunDataFolder, RunPath
from segconf_cli.outcome import next_step, record
from segconf_cli.report_tables import show_label_report, show_report

if TYPE_CHECKING:
    from segconf.evaluation.error_bands import ErrorBand
    from segconf.evaluation.evaluate import Evaluation
    from segconf.ood.evaluation import OODReport


def evaluate(
    run: RunPath,
    data: RunDataFolder = None,
    split: Annotated[str, typer.Option(help="test or val.")] = "test",
    out: ReportFolder = None,
    native: Annotated[
        bool,
        typer.Option(
            "--native",
            help="At the size of the original masks.",
            rich_help_panel="What is measured",
        ),
    ] = False,
    weights: Annotated[
        str,
        typer.Option(
            help="best: of the best validation mIoU or accuracy; last: of the last epoch, not "
            "calibrated.",
            rich_help_panel="What is measured",
        ),
    ] = "best",
    ood: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Out-of-distribution images, or a data set: how well are they detected?",
            show_default="none",
            rich_help_panel="What is measured",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    """Measure masks or labels and their confidence on a split.

    Example: segconf evaluate runs/isic-consistency-250-seed0
    """
    from segconf.errors import ConfigError
    from segconf.evaluation.evaluate import EvaluationOptions
    from segconf.evaluation.evaluate import evaluate as evaluate_run

    if split not in {"test", "val"}:
        raise ConfigError(f"--split {split}: expected test or val.")
    if weights not in {"best", "last"}:
        raise ConfigError(f"--weights {weights}: expected best or last.")
    if weights == "last" and ood is not None:
        raise ConfigError("--ood: is measured with the best weights. Leave out --weights last.")
    if ood is not None:
        from segconf.ood.evaluation import evaluate_ood, other_files

        other_files(ood)  # says so if there are none, before anything slow begins
    options = EvaluationOptions(
        "test" if split == "test" else "val",
        data,
        native,
        device,
        others=() if ood is None else (ood,),
        weights="best" if weights == "best" else "last",
    )
    with counting() as progress:
        evaluation = evaluate_run(run, options, out=out, on_progress=progress)
    if evaluation is None:
        return
    _show(evaluation)
    if ood is not None:
        with counting() as progress:
            report = evaluate_ood(run, ood, evaluation.folder, options, on_progress=progress)
        _show_ood(report, evaluation.folder)
    next_step(f"segconf predict IMAGES --out maps --checkpoint {shlex.quote(str(run))}")


def _show(evaluation: Evaluation) -> None:
    from segconf.evaluation.report import EvaluationReport

    unit = "pixel"
    if isinstance(evaluation.report, EvaluationReport):
        show_report(evaluation.report)
    else:
        unit = "image"
        show_label_report(evaluation.report)
    if evaluation.threshold is not None:
        kept = evaluation.threshold
        wrong = f"no {unit}" if math.isnan(kept.risk) else f"{kept.risk:.2%} of them wrong"
        results().print(
            f"Confidence from {kept.confidence:.4f}: {kept.coverage:.1%} of these {unit}s, "
            f"{wrong}; the run promises at most {kept.max_risk:.2%}.",
            highlight=False,
        )
    _show_bands(evaluation)
    _show_expected_dice(evaluation)
    _show_guarantees(evaluation)
    messages().print(f"Report: {evaluation.folder}", highlight=False)
    record(
        folder=evaluation.folder,
        threshold=evaluation.threshold,
        guarantees=evaluation.guarantees,
    )


def _show_bands(evaluation: Evaluation) -> None:
    """How often pixels are wrong, by bands of confidence, and as the page shades them."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from segconf.evaluation.error_bands import page_rates

    bands = evaluation.error_bands
    if not bands:
        return
    table = Table(title="wrong pixels by confidence", title_justify="left", box=SIMPLE_HEAD)
    for title in ("promised", "from", "pixels", "wrong", "outline", "elsewhere", "page"):
        left = title in {"promised", "page"}
        table.add_column(title, justify="left" if left else "right", no_wrap=True)
    for band in bands:
        wrong = (_percent(one.error_rate) for one in (band.all, band.boundary, band.interior))
        table.add_row(
            _promise(band),
            f"{band.confidence[0]:.3f}",
            f"{band.all.fraction:.1%}",
            *wrong,
            "shaded" if band.shaded else "clear",
        )
    results().print(table)
    for shaded, name in ((True, "Shaded by the page"), (False, "Left clear")):
        rates = page_rates(bands, shaded=shaded)
        if rates.all.fraction:
            near, elsewhere = (
                _percent(rates.boundary.error_rate),
                _percent(rates.interior.error_rate),
            )
            results().print(
                f"{name}: {rates.all.fraction:.1%} of these pixels, {rates.all.error_rate:.2%} of "
                f"them wrong (near the outline {near}, elsewhere {elsewhere}).",
                highlight=False,
            )


def _percent(rate: float) -> str:
    return "no pixel" if math.isnan(rate) else f"{rate:.2%}"


def _promise(band: ErrorBand) -> str:
    """Error rates that validation images promise for a band."""
    if band.at_most is None:
        return f"more than 1 in {band.above}"
    if band.above is None:
        return f"1 in {band.at_most} or less"
    return f"1 in {band.above} to 1 in {band.at_most}"


def _show_expected_dice(evaluation: Evaluation) -> None:
    """How far the expected Dice of an image can be taken at its word."""
    found = evaluation.expected_dice
    if found is None or not found.images:
        return
    results().print(
        f"Expected Dice {found.mean_expected:.3f} on average, reached {found.mean_dice:.3f}; per "
        f"image off by {found.mean_absolute_error:.3f}, Spearman correlation {found.spearman:.3f}.",
        highlight=False,
    )


def _show_guarantees(evaluation: Evaluation) -> None:
    """What conformal contours and a certified referral promise and keep."""
    from segconf.conventions import ASSUMPTIONS

    several = len({one.class_index for one in evaluation.guarantees}) > 1
    for one in evaluation.guarantees:
        name = f"{one.kind.capitalize()} line" + (f" of class {one.class_index}" if several else "")
        band = (
            "" if math.isnan(one.band_fraction) else f"; band {one.band_fraction:.1%} of the lesion"
        )
        results().print(
            f"{name}, promised at most {one.alpha:.1%}: kept {one.measured:.1%} (95% interval "
            f"{one.low:.1%} to {one.high:.1%}){band}.",
            highlight=False,
        )
    kept = evaluation.referral
    if kept is not None:
        results().print(
            f"Referral, promised a mean Dice of {kept.target_dice:.3f}: kept {kept.measured:.3f} "
            f"(95% interval {kept.low:.3f} to {kept.high:.3f}) for {kept.kept_fraction:.1%} of the "
            "images.",
            highlight=False,
        )
    if evaluation.guarantees or kept is not None:
        results().print(ASSUMPTIONS, style="dim", highlight=False)


def _show_ood(report: OODReport, folder: Path) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for title in ("score", "AUROC", "detection error", "FPR-95"):
        table.add_column(title, justify="left" if title == "score" else "right", no_wrap=True)
    for name, values in report.metrics.items():
        table.add_row(
            name, *(f"{values[key]:.3f}" for key in ("auroc", "detection_error", "fpr95"))
        )
    record(out_of_distribution={"images": report.others, "scores": report.metrics})
    results().print(
        f"{report.others} out-of-distribution images and {report.own} own images:", highlight=False
    )
    results().print(table)
    if report.flagged is not None and report.false_alarm_rate is not None:
        own, others = report.flagged
        results().print(
            f"predict would flag {others:.1%} of the out-of-distribution images and {own:.1%} of "
            f"the own images (false alarms on validation: {report.false_alarm_rate:.1%}).",
            highlight=False,
        )
    else:
        messages().print(
            "note: this run has no out-of-distribution detector (training.ood_detector), so "
            "predict cannot flag these images.",
            highlight=False,
        )
    messages().print(f"Histogram: {folder / 'ood.png'}", highlight=False)
