"""`segconf triage`: which predictions an expert has to see."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counting, messages, results
from segconf_cli.options import Device, ReportFolder, RunDataFolder, RunPath

if TYPE_CHECKING:
    from segconf.calibration.referred_cases import ReferredCase
    from segconf.calibration.triage import Triage

SHOWN = 20


def triage(
    run: RunPath,
    maps: Annotated[
        Path | None,
        typer.Argument(help="Folder that `predict` wrote with this run.", show_default=False),
    ] = None,
    split: Annotated[str, typer.Option(help="Labeled images to judge by: test or val.")] = "test",
    target_dice: Annotated[
        float, typer.Option(help="Mean Dice of the cases that are not referred.")
    ] = 0.85,
    data: RunDataFolder = None,
    out: ReportFolder = None,
    device: Device = "auto",
) -> None:
    """Find which cases to refer so that the others are good enough.

    The score that orders the validation images best becomes the run's: predict sorts the review
    page by it. With a prediction folder, its cases are listed in the order to be looked at.

    Example: segconf triage runs/isic-consistency-250-seed0 maps/ --target-dice 0.85
    """
    from segconf.calibration.referred_cases import refer
    from segconf.calibration.triage import triage as judge
    from segconf.errors import ConfigError
    from segconf.evaluation.evaluate import EvaluationOptions
    from segconf.inference.model import load_model

    if split not in {"test", "val"}:
        raise ConfigError(f"--split {split}: expected test or val.")
    options = EvaluationOptions("test" if split == "test" else "val", data, device=device)
    with counting() as progress:
        found = judge(run, options, target_dice=target_dice, out=out, on_progress=progress)
    _show(found)
    if maps is not None:
        _list(refer(maps, load_model(run, device=device), found.rule), maps)


def _show(found: Triage) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rule = found.rule
    results().print(
        f"{found.cases} {found.split} images, mean Dice {found.mean_dice:.3f}; refer cases until "
        f"the others have {rule.target_dice:.2f}:",
        highlight=False,
    )
    table = Table(box=SIMPLE_HEAD)
    for title in ("order", "AURC x10^3", "95% interval", "refer", "Dice left"):
        table.add_column(title, justify="left" if title == "order" else "right", no_wrap=True)
    for name, report in found.scores.items():
        low, high = report.interval
        mark = " *" if name == rule.score else ""
        table.add_row(
            name.replace("_", " ") + mark,
            f"{1e3 * report.aurc:.1f}",
            f"{1e3 * low:.1f} to {1e3 * high:.1f}",
            f"{report.referral.share:.1%}",
            f"{report.referral.kept_quality:.3f}" if report.referral.share < 1 else "",
        )
    table.add_row("random", f"{1e3 * (1 - found.mean_dice):.1f}", "", f"{found.random:.1%}", "")
    results().print(table)
    reached = (
        f"below {rule.threshold:.4f} a case is referred ({rule.share:.1%} of the validation images)"
        if isfinite(rule.threshold)
        else "no validation image reached the target, so every case is referred"
    )
    results().print(f"* best on validation, now the run's order; {reached}.", highlight=False)
    messages().print(f"Report: {found.folder}", highlight=False, markup=False)


def _list(judged: list[ReferredCase], maps: Path) -> None:
    referred = [found for found in judged if found.reason]
    results().print(f"Refer {len(referred)} of {len(judged)} cases:", highlight=False)
    for found in referred[:SHOWN]:
        results().print(f"  {found.case}: {found.reason}", highlight=False, markup=False)
    if len(referred) > SHOWN:
        results().print(f"  and {len(referred) - SHOWN} more", highlight=False)
    messages().print(f"All cases: {maps / 'referrals.csv'}", highlight=False, markup=False)
