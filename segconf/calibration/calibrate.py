"""Calibrate a run on its validation images: temperature, risk threshold, referral, contours."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.calibration.conformal import (
    GUARANTEES,
    Counts,
    class_counts,
    fit_contours,
    pooled_by_group,
)
from segconf.calibration.error_rates import scale_of
from segconf.calibration.isotonic import fit_error_rates
from segconf.calibration.referral import fit_notes, fit_referral, scores_of
from segconf.calibration.referral_guarantee import SCORE, certify_referral
from segconf.calibration.stored import (
    Calibration,
    StoredErrorRates,
    StoredNote,
    StoredReferral,
    StoredTemperature,
    StoredThreshold,
    write_calibration,
)
from segconf.calibration.temperature import TemperatureFit, WrittenBatches, fit_temperature
from segconf.calibration.threshold import fit_threshold
from segconf.checkpoints.weights import store_temperature
from segconf.confidence import FloatArray
from segconf.conventions import IGNORE
from segconf.data.cache import Progress
from segconf.data.cases import ImageCases, images_of
from segconf.devices import resolve_device
from segconf.errors import ConfigError, DataError
from segconf.inference.torch_model import TorchModel
from segconf.metrics.image_summary import ImageSummary
from segconf.metrics.overlap import dice
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.ood.detector import FALSE_ALARMS
from segconf.results.maps import Maps
from segconf.results.rows import CaseRow
from segconf.results.summary import summarize
from segconf.runs.run_cases import BATCH, GridCases, masked_cases, whole_images
from segconf.runs.run_folder import RunFolder
from segconf.runs.run_lock import alone_in_run

DEFAULT_MAX_RISK = 0.02
DEFAULT_TARGET_DICE = 0.85
DEFAULT_REFER_FRACTION = 0.2

Scaling = Literal["temperature", "none"]


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """What was fitted and stored, and what the temperature changed.

    Attributes:
        calibration: the content of `calibration.json`.
        fit: of the temperature; None without one.
        before: metrics of the validation images at temperature 1.
        after: their metrics at the fitted temperature.
        classes: of the network.
    """

    calibration: Calibration
    fit: TemperatureFit | None
    before: dict[str, float]
    after: dict[str, float]
    classes: int


@alone_in_run
def calibrate(  # noqa: PLR0913 - an entry function: every value that can be chosen
    run: Path | str,
    *,
    scaling: Scaling = "temperature",
    max_risk: float = DEFAULT_MAX_RISK,
    target_dice: float = DEFAULT_TARGET_DICE,
    refer_fraction: float = DEFAULT_REFER_FRACTION,
    guarantees: Sequence[float] = GUARANTEES,
    data: Path | str | None = None,
    device: str = "auto",
    on_progress: Progress | None = None,
) -> CalibrationResult:
    """Fit everything that a run promises about new images, and store it in the run.

    The fit starts from the network's own logits, whatever was stored before: calibrating twice
    gives the same result. The network sees each image once; its logits wait in a temporary file.

    Args:
        run: the run folder.
        scaling: fit one temperature by the NLL of all validation pixels, or leave logits alone.
        max_risk: largest fraction of wrong pixels at or above the confidence threshold.
        target_dice: mean Dice that the cases which are not referred should have.
        refer_fraction: largest fraction of ordinary images that may be referred.
        guarantees: expected losses that the outer and inner contours promise; see `conformal`.
        data: where the data set lies, if it has moved since.
        device: auto, cpu, cuda, cuda:N or mps.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    check_targets(max_risk=max_risk, target_dice=target_dice, refer_fraction=refer_fraction)
    check_budget(refer_fraction)
    for alpha in guarantees:
        check_targets(guarantee=alpha)
    path = Path(run)
    folder = RunFolder(path)
    cases, root = masked_cases(folder, "val", None if data is None else Path(data))
    model = TorchModel(path, device=resolve_device(device), batch_size=BATCH, calibrated=False)
    classes = model.config.model.classes
    images = images_of(cases)
    cases = tuple(case for image in images for case in image.cases)
    grid_cases = GridCases(cases, root, model.config, "val", on_progress)
    with WrittenBatches(lambda: _logits(model, grid_cases, on_progress)) as batches:
        of_cases = [case.group for case in cases]
        fit = fit_temperature(batches, of_cases) if scaling == "temperature" else None
        temperature = 1.0 if fit is None else fit.temperature
        found = _measure(batches(), images, temperature, classes=classes)
    if not found.pooled.pixels:
        raise DataError(
            f"{root}: no pixel of the validation masks is annotated: there is nothing to fit."
        )
    groups = [image.group for image in images]
    threshold = fit_threshold(found.pooled, found.summaries, max_risk, groups=groups)
    rates = fit_error_rates(found.pooled.groups(), classes)
    shaded = scale_of(rates, classes).shaded
    rows = [
        replace(row, shaded_fraction=one.fraction_below(shaded))
        for row, one in zip(found.rows, found.summaries, strict=True)
    ]
    reserved = FALSE_ALARMS if model.config.training.ood_detector else 0.0
    budget = refer_fraction - reserved
    referral = fit_referral(rows, found.dice, target_dice, budget=budget, groups=groups)
    pooled = pooled_by_group(found.counts, of_cases)
    contours, curves = fit_contours(pooled, sorted(set(guarantees)), len(images))
    counts: dict[str, Any] = {"images": len(images), "groups": len(set(groups))}
    calibration = Calibration(
        weights_sha256=model.weights_sha256,
        temperature=None
        if fit is None
        else StoredTemperature(
            value=fit.temperature,
            interval=fit.interval,
            nll_before=fit.nll_before,
            nll=fit.nll,
            **counts,
        ),
        threshold=StoredThreshold(
            confidence=threshold.threshold,
            max_risk=max_risk,
            risk=_known(threshold.risk),
            risk_interval=None if math.isnan(threshold.risk) else threshold.risk_interval,
            coverage=threshold.coverage,
            coverage_interval=threshold.coverage_interval,
            **counts,
        ),
        error_rates=StoredErrorRates(**asdict(rates), **counts),
        referral=StoredReferral(
            score=referral.score,
            threshold=referral.threshold,
            refer_fraction=refer_fraction,
            reserved=reserved,
            fraction=referral.fraction,
            kept_dice=referral.kept_dice,
            kept_dice_interval=referral.interval,
            target_dice=target_dice,
            target_fraction=referral.target_fraction,
            **counts,
        ),
        notes=tuple(StoredNote(**asdict(one), **counts) for one in fit_notes(rows)),
        referral_guarantee=certify_referral(
            scores_of(found.rows, SCORE), found.dice, groups, target_dice=target_dice
        ),
        contours=contours,
        contour_curves=curves,
    )
    store_temperature(path, temperature)
    write_calibration(path, calibration)
    before, after = found.before.compute(), found.pooled.compute()
    return CalibrationResult(calibration, fit, before, after, classes)


def check_targets(**targets: float) -> None:
    """Refuse targets that are no fractions, by their names."""
    for name, value in targets.items():
        if not 0 < value < 1:
            raise ConfigError(f"{name} = {value}: expected a number between 0 and 1.")


def check_budget(refer_fraction: float) -> None:
    """Refuse a budget that the out-of-distribution detector alone would spend."""
    if refer_fraction < FALSE_ALARMS:
        raise ConfigError(
            f"refer_fraction = {refer_fraction}: expected at least {FALSE_ALARMS:.2g}, the "
            "fraction of ordinary images that are out of distribution to the detector."
        )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _logits(
    model: TorchModel, cases: GridCases, on_progress: Progress | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (B, K, h, w) and masks (B, h, w) of all images."""
    done = 0
    for images, masks in cases.batches():
        logits = torch.from_numpy(model.grid_logits(images))
        yield logits, torch.from_numpy(masks)
        done += len(logits)
        if on_progress is not None:
            on_progress("validation images", done, len(cases.cases))


@dataclass(frozen=True, slots=True)
class _Measured:
    """Validation images after the temperature."""

    before: ConfidenceMetrics
    pooled: ConfidenceMetrics
    summaries: list[ImageSummary]
    rows: list[CaseRow]
    dice: np.ndarray[tuple[int], np.dtype[np.float64]]
    counts: list[Counts]


def _measure(
    batches: Iterator[tuple[Tensor, Tensor]],
    images: Sequence[ImageCases],
    temperature: float,
    *,
    classes: int,
) -> _Measured:
    before = ConfidenceMetrics(num_classes=classes)
    pooled = ConfidenceMetrics(num_classes=classes)
    summaries: list[ImageSummary] = []
    rows: list[CaseRow] = []
    reached: list[float] = []
    counts: list[Counts] = []
    arrays = ((logits.numpy(), masks.numpy()) for logits, masks in batches)
    for image, logits, masks in whole_images(images, arrays):
        before.update(logits, masks)
        scaled = np.asarray(logits / np.float32(temperature), np.float32)
        metrics = ConfidenceMetrics(num_classes=classes)
        metrics.update(scaled, masks)
        pooled.merge(metrics)
        summaries.append(metrics.summary())
        row, dice_reached = scored_image(image, scaled, masks, shaded=0)
        rows.append(row)
        reached.append(dice_reached)
        counts += [class_counts(one, mask) for one, mask in zip(scaled, masks, strict=True)]
    return _Measured(before, pooled, summaries, rows, np.array(reached), counts)


def scored_image(
    image: ImageCases, logits: FloatArray, masks: NDArray[np.uint8], *, shaded: float
) -> tuple[CaseRow, float]:
    """The row that `predict` would write, on the network's grid, and the foreground Dice reached.

    The Dice is 1 where both masks are empty: nothing was missed.

    Args:
        image: a picture or a whole volume.
        logits: (D, K, h, w), after the temperature.
        masks: (D, h, w), 255 = ignore.
        shaded: confidence below which pixels are shaded.
    """
    maps, valid = Maps.of_grid(logits), masks != IGNORE
    _, height, width = masks.shape
    row = CaseRow(image.name, image.path.name, height, width, group=image.group)
    overlap = dice((maps.mask > 0) & valid, (masks > 0) & valid)
    reached = 1.0 if math.isnan(overlap) else overlap
    return summarize(row, maps, shaded=shaded), reached
