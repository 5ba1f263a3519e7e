"""`segconf calibrate`: make a run as sure as it is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from segconf_cli.display import counting, messages, results
from segconf_cli.options import Device, RunDataFolder, RunPath

if TYPE_CHECKING:
    from segconf.calibration.calibrate import TemperatureCalibration


def calibrate(
    run: RunPath,
    data: RunDataFolder = None,
    device: Device = "auto",
) -> None:
    """Fit a temperature on the validation images; evaluate and predict then use it.

    Masks stay as they are, confidences become sharper or softer. The temperature is kept in
    best.safetensors: a training that is continued afterwards and finds better weights writes them
    without it, so calibrate last.

    Example: segconf calibrate runs/isic-softmax-250-seed0
    """
    from segconf.calibration.calibrate import calibrate as fit

    with counting() as progress:
        calibration = fit(run, data=data, device=device, on_progress=progress)
    _show(run, calibration)


def _show(run: Path, calibration: TemperatureCalibration) -> None:
    from segconf.metrics.definitions import heading, scaled

    fit, before, after = calibration.fit, calibration.before, calibration.after
    changes = ", ".join(
        f"{heading(name)} {scaled(before[name], name)} -> {scaled(after[name], name)}"
        for name in ("nll", "ece")
    )
    results().print(
        f"Temperature {fit.temperature:.4f} from {calibration.images} validation images "
        f"({fit.passes} passes): {changes}.",
        highlight=False,
    )
    note = messages().print
    if fit.at_bound:
        note(
            "warning: this is the end of the range that is searched, so the validation images do "
            "not tell a temperature (too few, or all of their pixels right).",
            style="yellow",
            highlight=False,
        )
    if calibration.removed_threshold is not None:
        note(
            f"{calibration.removed_threshold}: removed, because it held a confidence threshold "
            f"from before. Fit a new one: segconf evaluate {run} --max-risk R",
            highlight=False,
            markup=False,
        )
    note(f"Evaluations from before do not know it: segconf evaluate {run}", highlight=False)
