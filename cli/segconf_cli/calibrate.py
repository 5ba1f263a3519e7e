"""`segconf calibrate`: fit a calibrator, risk threshold and referral on validation images."""

from __future__ import annotations

import math
import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from segconf.conventions import ASSUMPTIONS
from segconf_cli.display import counting, messages, results, warn
from segconf_cli.options import Device, RunDataFolder, RunPath
from segconf_cli.outcome import next_step, record

if TYPE_CHECKING:
    from pathlib import Path

    from segconf.calibration.calibrate import CalibrationResult
    from segconf.calibration.stored import (
        Calibration,
        StoredContour,
        StoredReferral,
        StoredReferralGuarantee,
    )


class Scaling(StrEnum):
    """How logits are scaled."""

    TEMPERATURE = "temperature"
    ETS = "ets"
    VECTOR = "vector"
    NONE = "none"


def calibrate(
    run: RunPath,
    scaling: Annotated[
        Scaling,
        typer.Option(
            "--with",
            help="How logits are scaled: by a temperature, by a mixture of temperatures (ets), by "
            "a scale and a bias of every class (vector), or not at all.",
        ),
    ] = Scaling.TEMPERATURE,
    max_risk: Annotated[
        float, typer.Option(help="Largest fraction of wrong pixels above the threshold.")
    ] = 0.02,
    target_dice: Annotated[
        float, typer.Option(help="Mean Dice that the cases which are not referred should have.")
    ] = 0.85,
    refer_fraction: Annotated[
        float, typer.Option(help="Largest fraction of ordinary images that may be referred.")
    ] = 0.2,
    guarantee: Annotated[
        list[float] | None,
        typer.Option(
            metavar="ALPHA",
            help="Expected loss that the outer and inner contours promise; repeatable.",
            show_default="0.05 and 0.1",
        ),
    ] = None,
    data: RunDataFolder = None,
    device: Device = "auto",
) -> None:
    """Fit everything that predict promises about new images, on the validation images.

    Masks stay as they are, except with `--with vector`. calibration.json holds every fitted number,
    its interval, and the hash of the weights that it belongs to. `segconf train` ends with this
    step.

    Example: segconf calibrate runs/isic-softmax-250-seed0 --max-risk 0.02
    """
    from segconf.calibration.calibrate import calibrate as fit
    from segconf.calibration.conformal import GUARANTEES

    with counting() as progress:
        found = fit(
            run,
            scaling=scaling.value,
            max_risk=max_risk,
            target_dice=target_dice,
            refer_fraction=refer_fraction,
            guarantees=guarantee or GUARANTEES,
            data=data,
            device=device,
            on_progress=progress,
        )
    show_calibration(run, found)
    record(run=run, calibration=found.calibration.model_dump(mode="json"))
    next_step(f"segconf evaluate {shlex.quote(str(run))}")


def show_calibration(run: Path, found: CalibrationResult) -> None:
    """What was fitted, in one line each."""
    from segconf.metrics.definitions import heading, scaled

    say = results().print
    stored = found.calibration
    if found.fit is not None:
        changes = ", ".join(
            f"{heading(name)} {scaled(found.before[name], name)} -> "
            f"{scaled(found.after[name], name)}"
            for name in ("nll", "ece")
        )
        say(f"{_fitted(stored)}: {changes}.", highlight=False)
        if found.fit.at_bound:
            what = "the temperature" if stored.vector is None else "a scale"
            warn(
                f"warning: {what} is at the end of the range that is searched, so the "
                "validation images do not determine it (too few, or all of their pixels right)."
            )
    if stored.threshold is not None:
        fitted = stored.threshold
        low, high = fitted.coverage_interval
        unit = "pixel" if stored.label_referral is None else "image"
        risk = f"no {unit}" if fitted.risk is None else f"{fitted.risk:.2%} of them wrong"
        say(
            f"Risk threshold {fitted.confidence:.4f}: {fitted.coverage:.1%} of the {unit}s lie "
            f"above it (95% interval {low:.1%} to {high:.1%}), {risk}.",
            highlight=False,
        )
    if stored.error_rates is not None and stored.label_referral is None:
        rates = stored.error_rates.rates
        scale = stored.scale(found.classes)
        say(
            f"Shaded: pixels that are wrong more than 1 time in {scale.shaded_times}, those below "
            f"confidence {scale.shaded:.4f} ({rates.fraction_below(scale.shaded):.1%} of the "
            "validation pixels).",
            highlight=False,
        )
    if stored.expected_dice is not None:
        dice = stored.expected_dice
        say(
            f"Expected Dice: off by {dice.error:.3f} per validation image, corrected; by "
            f"{dice.error_before:.3f} as the probabilities have it.",
            highlight=False,
        )
    if stored.referral is not None:
        _show_referral(stored.referral)
    if stored.label_referral is not None:
        rule = stored.label_referral
        low, high = rule.kept_accuracy_interval
        say(
            f"Referral: images with confidence below {rule.threshold:.4f}, {rule.fraction:.1%} of "
            f"the validation images; the others have an accuracy of {rule.kept_accuracy:.3f} (95% "
            f"interval {low:.3f} to {high:.3f}) instead of {rule.accuracy:.3f}.",
            highlight=False,
        )
    if stored.referral_guarantee is not None:
        say(_certified(stored.referral_guarantee), highlight=False)
    for contour in stored.contours:
        text = _promise(contour, classes=len({one.class_index for one in stored.contours}))
        say(text, highlight=False)
    if stored.contours:
        say(ASSUMPTIONS, style="dim", highlight=False)
    messages().print(f"Stored in {run / 'calibration.json'}", highlight=False)


def _fitted(stored: Calibration) -> str:
    """The calibrator with its intervals."""
    if stored.vector is not None:
        pairs = zip(stored.vector.scales, stored.vector.scale_intervals, strict=True)
        scales = (f"{value:.4f} ({low:.4f} to {high:.4f})" for value, (low, high) in pairs)
        biases = ", ".join(f"{value:.4f}" for value in stored.vector.biases)
        return f"Scales of the classes (95% interval) {', '.join(scales)}, biases {biases}"
    if stored.ets is not None:
        low, high = stored.ets.interval
        weights = ", ".join(f"{weight:.3f}" for weight in stored.ets.weights)
        return (
            f"Temperature {stored.ets.temperature:.4f} (95% interval {low:.4f} to {high:.4f}), "
            f"weights of calibrated, own and equal probabilities {weights}"
        )
    if stored.temperature is None:
        return "No calibrator"
    low, high = stored.temperature.interval
    return f"Temperature {stored.temperature.value:.4f} (95% interval {low:.4f} to {high:.4f})"


def _certified(rule: StoredReferralGuarantee) -> str:
    """Which cases to refer for a guaranteed Dice, or that it cannot be proved."""
    units = f"{rule.groups} validation groups ({rule.images} images)"
    head = f"Referral that guarantees a mean Dice of {rule.target_dice:.2f} with probability "
    head += f"{1 - rule.delta:.3g}: "
    if rule.threshold is None or rule.kept_dice is None:
        return f"{head}not possible with {units} at this level."
    name = rule.score.replace("_", " ")
    which = f"refer cases with {name} up to {rule.threshold:.4f}"
    if rule.threshold < 0:
        empty = "refer cases in which nothing was found"
        which = empty if rule.fraction > 0 else "no case has to be referred"
    return (
        f"{head}{which} ({rule.fraction:.1%} of {units}; mean Dice of the others "
        f"{rule.kept_dice:.3f})."
    )


def _promise(contour: StoredContour, *, classes: int) -> str:
    """What a contour promises, or that it cannot; with several classes, for which."""
    name = contour.kind.capitalize() + " line"
    if classes > 1:
        name += f" of class {contour.class_index}"
    units = f"{contour.groups} validation groups ({contour.images} images)"
    if contour.threshold is None:
        return f"{name}, {contour.alpha:.3g}: not possible with {units} at this level."
    loss = (
        f"misses at most {contour.alpha:.3g} of a lesion"
        if contour.kind == "outer"
        else f"holds at most {contour.alpha:.3g} that is not lesion"
    )
    return (
        f"{name}, probability from {contour.threshold:.4f}: on average it {loss} "
        f"({contour.risk:.3f} on {units})."
    )


def _show_referral(rule: StoredReferral) -> None:
    name = rule.score.replace("_", " ")
    kept = (
        "" if rule.kept_dice is None else f"; the others have a mean Dice of {rule.kept_dice:.3f}"
    )
    results().print(
        f"Referral: cases with {name} below {rule.threshold:.4f}, {rule.fraction:.1%} of the "
        f"validation images{kept}.",
        highlight=False,
    )
    if rule.reaches_target:
        return
    needed = math.ceil(100 * (rule.target_fraction + rule.reserved) - 1e-6) / 100
    way_out = (
        f"--refer-fraction {needed:.2f} would reach it." if needed < 1 else "No budget reaches it."
    )
    messages().print(
        f"note: that is below the target of {rule.target_dice:.2f}. {way_out}", highlight=False
    )
