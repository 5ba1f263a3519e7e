"""Which predictions an expert has to see: image-level scores judged by the Dice they foretell."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segconf.calibration.referral import (
    FILE_NAME,
    SCORES,
    Referral,
    ReferralRule,
    aurc_interval,
    image_aurc,
    image_risk_curve,
    share_to_refer,
)
from segconf.conventions import IGNORE
from segconf.data.cache import Progress
from segconf.devices import resolve_device
from segconf.errors import ConfigError
from segconf.evaluation.evaluate import EvaluationOptions
from segconf.files import write_text
from segconf.inference.model import Model
from segconf.metrics.overlap import dice
from segconf.plots.image_scores import triage_plot
from segconf.results.maps import Maps
from segconf.results.rows import CaseRow
from segconf.results.summary import summarize
from segconf.runs.run_cases import BATCH, GridCases, masked_cases
from segconf.runs.run_folder import RunFolder

Floats = NDArray[np.float64]


BEST = "best possible"


_DEFINITIONS = {
    "risk": "1 - Dice of an image; 0 where both the prediction and the mask are empty",
    "aurc": "mean risk of the k best-scored images, averaged over k = 1 .. N; ties share",
    "share": "fewest cases to refer, lowest score first, so that the others reach the target",
    "without a score": "a case without predicted lesion has no border or foreground: it goes first",
    "random": "referring at random leaves the mean as it is: none or all have to be referred",
    "interval": "95%, percentiles of 1000 resamples of images",
}


@dataclass(frozen=True, slots=True)
class JudgedCases:
    """Rows as `predict` would write them, and the Dice that was reached."""

    rows: tuple[CaseRow, ...]
    dice: Floats  # (N,) 1 where both masks are empty

    def score(self, name: str) -> Floats:
        """(N,) values of a score, high = good; a case that has none goes first."""
        return scores_of(self.rows, name)


def scores_of(rows: Sequence[CaseRow], name: str) -> Floats:
    """(N,) values of a score; -1 where nothing was found: those are to be looked at first."""
    values = np.array([getattr(row, name) for row in rows], np.float64)
    return np.where(np.isnan(values), -1.0, values)


@dataclass(frozen=True, slots=True)
class ScoreReport:
    """How well a score orders the cases."""

    aurc: float
    interval: tuple[float, float]
    referral: Referral


@dataclass(frozen=True, slots=True)
class Triage:
    """The scores on a split, what chance and the best order would do, and the rule of the run.

    Attributes:
        folder: the report.
        split: test or val.
        cases: number of images.
        mean_dice: of all of them.
        scores: report by score; the best possible order among them.
        random: share to refer when cases are picked at random: 0 or 1.
        rule: chosen on validation.
    """

    folder: Path
    split: str
    cases: int
    mean_dice: float
    scores: Mapping[str, ScoreReport]
    random: float
    rule: ReferralRule


def triage(
    run_path: Path,
    options: EvaluationOptions,
    *,
    target_dice: float = 0.85,
    out: Path | None = None,
    on_progress: Progress | None = None,
) -> Triage:
    """Judge all scores on a split, and let validation choose the rule that the run keeps.

    Args:
        run_path: the run folder.
        options: split, data and device; the grid is that of the network.
        target_dice: mean Dice that the cases which are not referred should have.
        out: folder of the report; `evaluation/<split>` of the run when not given.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    run = RunFolder(run_path)
    run.data()
    split, data = options.split, options.data
    model = Model(run_path, device=resolve_device(options.device), batch_size=BATCH)
    validation = judge_cases(run, model, "val", data, on_progress)
    rule = choose_rule(validation, target_dice)
    judged = validation if split == "val" else judge_cases(run, model, split, data, on_progress)
    folder = out or run.path / "evaluation" / split
    found = _report(judged, rule, folder, split)
    _write(found, judged, target_dice)
    content = {
        "score": rule.score,
        "threshold": rule.threshold if math.isfinite(rule.threshold) else None,
        "target_dice": target_dice,
        "share": rule.share,
        "validation_images": len(validation.rows),
    }
    write_text(run.path / FILE_NAME, json.dumps(content, indent=1))
    return found


def judge_cases(
    run: RunFolder, model: Model, split: str, data: Path | None, on_progress: Progress | None
) -> JudgedCases:
    """Scores and Dice of the labeled images of a split, on the network's grid."""
    cases, root = masked_cases(run, split, data)
    rows: list[CaseRow] = []
    reached: list[float] = []
    for images, masks in GridCases(cases, root, model.config, split, on_progress).batches():
        for logits, mask in zip(model.grid_logits(images), masks, strict=True):
            case, maps = cases[len(rows)], Maps.of_grid(logits)
            row = CaseRow(case.id, case.image_path.name, *mask.shape)
            rows.append(summarize(row, maps, threshold=model.scale.threshold))
            valid = mask != IGNORE
            overlap = dice((maps.mask[0] > 0) & valid, (mask > 0) & valid)
            reached.append(1.0 if math.isnan(overlap) else overlap)
        if on_progress is not None:
            on_progress(f"{split} images", len(rows), len(cases))
    return JudgedCases(tuple(rows), np.array(reached))


def choose_rule(validation: JudgedCases, target_dice: float) -> ReferralRule:
    """The score with the smallest AURC on validation, and its threshold for the target."""
    if not 0 < target_dice <= 1:
        raise ConfigError(f"--target-dice {target_dice}: expected a number between 0 and 1.")
    risk = 1 - validation.dice
    best = min(SCORES, key=lambda name: image_aurc(validation.score(name), risk))
    referral = share_to_refer(validation.score(best), validation.dice, target_dice)
    return ReferralRule(best, referral.threshold, target_dice, referral.share)


def _report(judged: JudgedCases, rule: ReferralRule, folder: Path, split: str) -> Triage:
    columns = {name: judged.score(name) for name in SCORES} | {BEST: judged.dice}
    risk, target, mean = 1 - judged.dice, rule.target_dice, float(judged.dice.mean())
    reports = {
        name: ScoreReport(
            image_aurc(score, risk),
            aurc_interval(score, risk),
            share_to_refer(score, judged.dice, target),
        )
        for name, score in columns.items()
    }
    return Triage(
        folder, split, len(risk), mean, reports, random=0.0 if mean >= target else 1.0, rule=rule
    )


def _write(found: Triage, judged: JudgedCases, target: float) -> None:
    folder = found.folder
    folder.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["case", "dice", *SCORES])
    for row, reached in zip(judged.rows, judged.dice, strict=True):
        values = [getattr(row, name) for name in SCORES]
        numbers = ["" if math.isnan(value) else f"{value:.6f}" for value in (reached, *values)]
        writer.writerow([row.case, *numbers])
    write_text(folder / "triage.csv", text.getvalue())
    content = {
        "split": found.split,
        "images": found.cases,
        "mean_dice": found.mean_dice,
        "target_dice": target,
        "default": found.rule.score,
        "scores": {name: _plain(report) for name, report in found.scores.items()},
        "random": {"aurc": 1 - found.mean_dice, "share": found.random},
        "definitions": _DEFINITIONS,
    }
    write_text(folder / "triage.json", json.dumps(content, indent=1))
    risk = 1 - judged.dice
    curves = {name: image_risk_curve(judged.score(name), risk) for name in SCORES}
    curves[BEST] = image_risk_curve(judged.dice, risk)
    triage_plot(curves, folder / "triage.png", target=1 - target, chosen=found.rule.score)


def _plain(report: ScoreReport) -> dict[str, object]:
    referral = report.referral
    kept = referral.kept_quality
    return {
        "aurc": report.aurc,
        "interval": list(report.interval),
        "referred": referral.referred,
        "share": referral.share,
        "kept_dice": None if math.isnan(kept) else kept,
    }
