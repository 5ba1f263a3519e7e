"""How well image-level scores order cases, and which cases of a prediction folder to refer."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segconf.calibration.mask_fit import scored_image
from segconf.calibration.referral import (
    SCORES,
    Referral,
    aurc_interval,
    cases_to_refer,
    image_aurc,
    image_risk_curve,
    scores_of,
)
from segconf.calibration.stored import StoredReferral
from segconf.csv_tables import table_text
from segconf.data.cache import Progress
from segconf.data.cases import images_of
from segconf.devices import resolve_device
from segconf.errors import CheckpointError, ConfigError, DataError
from segconf.evaluation.report import REPORT_FILES
from segconf.files import write_text
from segconf.inference.model import Model
from segconf.inference.torch_model import TorchModel
from segconf.locks import locked
from segconf.metrics.bootstrap import resampled_unit
from segconf.plots.image_scores import referral_plot
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import (
    NOT_FINITE,
    NOTE,
    OUT_OF_DISTRIBUTION,
    TOO_FEW_PIXELS,
    UNREADABLE,
    CaseRow,
)
from segconf.runs.run_cases import BATCH, GridCases, check_report, masked_cases, whole_images
from segconf.runs.run_folder import RunFolder

Floats = NDArray[np.float64]
BEST = "best possible"
REFERRALS = "referrals.csv"
_DEFINITIONS = {
    "risk": "1 - Dice of an image; 0 where both the prediction and the mask are empty",
    "aurc": "mean risk of the k best-scored images, averaged over k = 1 .. N; ties share",
    "fraction": "fewest cases to refer, lowest score first, so that the others reach the target",
    "without a score": "an empty predicted mask has no border or foreground: it goes first",
    "random": "referring at random leaves the mean as it is: none or all have to be referred",
    "image": "a picture, or a whole volume",
    "rule": "cases below the threshold that was fitted on validation images are referred",
    "interval": "95%, percentiles of 1000 resamples of what `resampled` names",
}


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """How well a score orders the cases."""

    aurc: float
    interval: tuple[float, float]
    referral: Referral


@dataclass(frozen=True, slots=True)
class Triage:
    """The scores on a split, and what a random and the best order would do.

    Attributes:
        folder: the report.
        split: test or val.
        cases: number of images.
        mean_dice: of all of them.
        scores: report by score; the best possible order among them.
        random: fraction to refer when cases are picked at random: 0 or 1.
        rule: that of the run, fitted on validation images.
        referred: fraction of the images that it refers.
        kept_dice: mean Dice of the others; nan where there are none.
    """

    folder: Path
    split: str
    cases: int
    mean_dice: float
    scores: Mapping[str, ScoreReport]
    random: float
    rule: StoredReferral
    referred: float
    kept_dice: float


@dataclass(frozen=True, slots=True)
class ReferredCase:
    """A case and why an expert should see it; an empty reason means that it may be kept."""

    case: str
    score: float
    reason: str


def stored_rule(model: Model) -> StoredReferral:
    """The referral rule of a run; one that predicts labels, or has none, is refused."""
    if model.config.data.task == "classification":
        raise ConfigError(
            f"{model.file.parent}: predicts labels, and triage measures the Dice of masks. "
            "predictions.csv of `segconf predict` names the images to refer."
        )
    rule = model.calibration.referral
    if rule is None:
        folder = model.file.parent
        raise CheckpointError(
            f"{folder}: no referral rule yet. Fit one with: segconf calibrate {folder}"
        )
    if rule.score not in SCORES:
        raise CheckpointError(
            f"{model.file.parent}: calibration.json refers by {rule.score}, which is none of "
            f"{', '.join(SCORES)}. Fit it again with: segconf calibrate {model.file.parent}"
        )
    return rule


def triage(
    run_path: Path,
    *,
    split: str = "test",
    data: Path | None = None,
    device: str = "auto",
    out: Path | None = None,
    on_progress: Progress | None = None,
) -> Triage:
    """Measure all scores on a split against the target of the run's referral rule.

    Args:
        run_path: the run folder.
        split: test or val.
        data: where the data set lies, if it has moved since.
        device: auto, cpu, cuda, cuda:N or mps.
        out: folder of the report; `evaluation/<split>` of the run when not given.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    run = RunFolder(run_path)
    run.data()
    check_report(out, run, data=data, known=REPORT_FILES)
    model = TorchModel(run_path, device=resolve_device(device), batch_size=BATCH)
    rule = stored_rule(model)
    rows, dice = _scored_cases(run, model, split, data, on_progress)
    columns = {name: scores_of(rows, name) for name in SCORES} | {BEST: dice}
    risk, mean = 1 - dice, float(dice.mean())
    reports = {
        name: ScoreReport(
            image_aurc(score, risk),
            aurc_interval(score, risk, [row.group for row in rows]),
            cases_to_refer(score, dice, rule.target_dice),
        )
        for name, score in columns.items()
    }
    random = 0.0 if mean >= rule.target_dice else 1.0
    folder = out or run.path / "evaluation" / split
    kept = columns[rule.score] >= rule.threshold  # (N,)
    kept_dice = float(dice[kept].mean()) if kept.any() else math.nan
    referred = float(1 - kept.mean())
    found = Triage(folder, split, len(dice), mean, reports, random, rule, referred, kept_dice)
    with locked(folder, wait=True):
        _write(found, rows, dice, model.weights_sha256)
    return found


def _scored_cases(
    run: RunFolder, model: TorchModel, split: str, data: Path | None, on_progress: Progress | None
) -> tuple[list[CaseRow], Floats]:
    """Rows as `predict` would write them, and the Dice (N,), of annotated images on the grid."""
    cases, root = masked_cases(run, split, data)
    rows: list[CaseRow] = []
    reached: list[float] = []
    images = images_of(cases)
    cases = tuple(case for image in images for case in image.cases)
    small = GridCases(cases, root, model.config, split, on_progress)
    batches = ((model.grid_logits(pixels), masks) for pixels, masks in small.batches())
    for number, (image, logits, masks) in enumerate(whole_images(images, batches), 1):
        row, dice = scored_image(image, logits, masks, shaded=model.scale.shaded)
        if not math.isnan(dice):
            rows.append(row)
            reached.append(dice)
        if on_progress is not None:
            on_progress(f"{split} images", number, len(images))
    if not rows:
        raise DataError(f"{root}: no pixel of the {split} masks is annotated: nothing to measure.")
    return rows, np.array(reached)


def _write(found: Triage, rows: list[CaseRow], dice: Floats, weights_sha256: str) -> None:
    folder, rule = found.folder, found.rule
    cells = []
    for row, reached in zip(rows, dice, strict=True):
        values = [getattr(row, name) for name in SCORES]
        numbers = ["" if math.isnan(value) else f"{value:.6f}" for value in (reached, *values)]
        cells.append([row.case, row.group, *numbers])
    write_text(folder / "triage.csv", table_text(["case", "group", "dice", *SCORES], cells))
    content = {
        "weights_sha256": weights_sha256,
        "split": found.split,
        "images": found.cases,
        "groups": len({row.group for row in rows}),
        "resampled": resampled_unit([row.group for row in rows]),
        "mean_dice": found.mean_dice,
        "target_dice": rule.target_dice,
        "default": rule.score,
        "rule": {
            "threshold": rule.threshold,
            "refer_fraction": rule.refer_fraction,
            "referred": found.referred,
            "kept_dice": None if math.isnan(found.kept_dice) else found.kept_dice,
        },
        "scores": {name: _plain(report) for name, report in found.scores.items()},
        "random": {"aurc": 1 - found.mean_dice, "fraction": found.random},
        "definitions": _DEFINITIONS,
    }
    write_text(folder / "triage.json", json.dumps(content, indent=1))
    risk = 1 - dice
    curves = {name: image_risk_curve(scores_of(rows, name), risk) for name in SCORES}
    curves[BEST] = image_risk_curve(dice, risk)
    target = 1 - rule.target_dice
    referral_plot(curves, folder / "triage.png", target=target, chosen=rule.score)


def _plain(report: ScoreReport) -> dict[str, object]:
    referral = report.referral
    kept = referral.kept_quality
    return {
        "aurc": report.aurc,
        "interval": list(report.interval),
        "referred": referral.referred,
        "fraction": referral.fraction,
        "kept_dice": None if math.isnan(kept) else kept,
    }


def check_maps(maps: Path, model: Model) -> PredictionFolder:
    """The prediction folder; one of another model is refused, and a model without a rule."""
    stored_rule(model)
    folder = PredictionFolder(maps)
    if folder.record().values["model"]["sha256"] != model.weights_sha256:
        raise DataError(
            f"{maps}: was predicted by another model than {model.file}. "
            "Give the folder that this run predicted."
        )
    return folder


def refer(maps: Path, model: Model) -> list[ReferredCase]:
    """Write `referrals.csv` into a prediction folder: all cases, those to refer first.

    Images that could not be read come first, then out-of-distribution images, whose confidence
    means little, then the others by their score. No masks are needed.

    Raises:
        DataError: the folder is that of another model, or lacks the score.
    """
    rule = stored_rule(model)
    rows = check_maps(maps, model).rows()
    seen = [row for row in rows if not row.error and row.foreground_fraction > 0]
    if seen and all(math.isnan(getattr(row, rule.score)) for row in seen):
        raise DataError(f"{maps}: has no {rule.score} yet. Predict again into a new folder.")
    values = scores_of(rows, rule.score).tolist()
    found = [_referred(row, value, model) for row, value in zip(rows, values, strict=True)]
    found.sort(key=lambda one: (_urgency(one), one.score, one.case))
    cells = []
    for number, one in enumerate(found, 1):
        score = f"{one.score:.6f}" if one.score >= 0 else ""
        cells.append([number, one.case, "yes" if one.reason else "no", score, one.reason])
    columns = ["order", "case", "refer", rule.score, "reason"]
    with locked(maps, wait=True):
        write_text(maps / REFERRALS, table_text(columns, cells))
    return found


def _referred(row: CaseRow, value: float, model: Model) -> ReferredCase:
    """By the rule of the model as it is now, which may have been calibrated again since."""
    if row.error:
        return ReferredCase(row.case, value, row.flags[0])
    remarks = [flag for flag in row.flags if flag.startswith(TOO_FEW_PIXELS)]
    flags = model.with_flags(row, remarks).flags
    is_reason = bool(flags) and not flags[0].startswith(NOTE)
    return ReferredCase(row.case, value, flags[0] if is_reason else "")


def _urgency(found: ReferredCase) -> int:
    if found.reason in (UNREADABLE, NOT_FINITE):
        return 0
    return {OUT_OF_DISTRIBUTION: 1, "": 3}.get(found.reason, 2)
