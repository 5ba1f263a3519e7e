"""`segconf triage`: which predictions an expert has to see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from segconf_cli.display import counting, messages, results
from segconf_cli.options import Device, ReportFolder, RunDataFolder, RunPath, Split
from segconf_cli.outcome import record

if TYPE_CHECKING:
    from segconf.calibration.triage import ReferredCase, Triage

SHOWN = 20


def triage(
    run: RunPath,
    maps: Annotated[
        Path | None,
        typer.Argument(help="Folder that `predict` wrote with this run.", show_default=False),
    ] = None,
    split: Annotated[Split, typer.Option(help="Labeled images to measure on.")] = Split.TEST,
    data: RunDataFolder = None,
    out: ReportFolder = None,
    device: Device = "auto",
) -> None:
    """Measure which cases to refer so that the others are good enough.

    The score and its threshold are those that `segconf calibrate --refer-fraction` fitted on the
    validation images. With a prediction folder, its cases are listed in the order to be reviewed.

    Example: segconf triage runs/isic-consistency-250-seed0 maps/
    """
    from segconf.calibration.triage import check_maps, refer
    from segconf.calibration.triage import triage as measure
    from segconf.inference.model import load_model

    if maps is not None:
        model = load_model(run, device=device)
        check_maps(maps, model)  # before anything slow begins
    with counting() as progress:
        found = measure(
            run, split=split.value, data=data, device=device, out=out, on_progress=progress
        )
    _show(found)
    if maps is not None:
        _list(refer(maps, model), maps)


def _show(found: Triage) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rule = found.rule
    record(
        folder=found.folder,
        images=found.cases,
        mean_dice=found.mean_dice,
        referred_fraction=found.referred,
        kept_dice=found.kept_dice,
    )
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
        referral = report.referral
        table.add_row(
            name.replace("_", " ") + mark,
            f"{1e3 * report.aurc:.1f}",
            f"{1e3 * low:.1f} to {1e3 * high:.1f}",
            f"{referral.fraction:.1%}",
            f"{referral.kept_quality:.3f}" if referral.fraction < 1 else "",
        )
    table.add_row("random", f"{1e3 * (1 - found.mean_dice):.1f}", "", f"{found.random:.1%}", "")
    results().print(table)
    results().print(
        f"* the order of this run; below {rule.threshold:.4f} a case is referred: "
        f"{rule.fraction:.1%} of the validation images, {found.referred:.1%} of these, and the "
        f"others have {found.kept_dice:.3f}.",
        highlight=False,
    )
    messages().print(f"Report: {found.folder}", highlight=False)


def _list(found: list[ReferredCase], maps: Path) -> None:
    referred = [one for one in found if one.reason]
    record(referred=[{"case": one.case, "reason": one.reason} for one in referred])
    results().print(f"Refer {len(referred)} of {len(found)} cases:", highlight=False)
    for one in referred[:SHOWN]:
        results().print(f"  {one.case}: {one.reason}", highlight=False)
    if len(referred) > SHOWN:
        results().print(f"  and {len(referred) - SHOWN} more", highlight=False)
    messages().print(f"All cases: {maps / 'referrals.csv'}", highlight=False)
