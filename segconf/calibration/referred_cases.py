"""Which cases of a prediction folder to refer, in which order, and why: no masks are needed."""

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

from segconf.calibration.referral import ReferralRule
from segconf.calibration.triage import scores_of
from segconf.errors import DataError
from segconf.files import write_text
from segconf.inference.model import Model
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import UNLIKE_TRAINING, CaseRow

FILE_NAME = "referrals.csv"


@dataclass(frozen=True, slots=True)
class ReferredCase:
    """A case and why an expert should see it; an empty reason means that it may be kept."""

    case: str
    score: float
    reason: str


def refer(maps: Path, model: Model, rule: ReferralRule) -> list[ReferredCase]:
    """Write `referrals.csv` into a prediction folder: all cases, those to refer first.

    Images that could not be read come first, then inputs unlike the training images, whose
    confidence means little, then the others by their score.

    Args:
        maps: folder that `predict` wrote with this model.
        model: the run.
        rule: score and threshold.

    Raises:
        DataError: the folder is that of another model, or lacks the score.
    """
    folder = PredictionFolder(maps)
    if folder.record().values["model"]["sha256"] != model.sha256():
        raise DataError(
            f"{maps}: was predicted by another model than {model.checkpoint.path}. "
            "Give the folder that this run predicted."
        )
    rows = folder.rows()
    columns = folder.table_file.read_text(encoding="utf-8").partition("\n")[0].split(",")
    if rule.score not in columns:
        raise DataError(f"{maps}: has no {rule.score} yet. Predict again into a new folder.")
    values = scores_of(rows, rule.score).tolist()
    judged = [_judged(row, value, rule) for row, value in zip(rows, values, strict=True)]
    judged.sort(key=lambda found: (_urgency(found), found.score, found.case))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["order", "case", "refer", rule.score, "reason"])
    for number, found in enumerate(judged, 1):
        answer = "yes" if found.reason else "no"
        value = f"{found.score:.6f}" if found.score >= 0 else ""
        writer.writerow([number, found.case, answer, value, found.reason])
    write_text(maps / FILE_NAME, text.getvalue())
    return judged


_UNREADABLE = "could not be read"


_NOTHING = "no lesion found"


def _judged(row: CaseRow, value: float, rule: ReferralRule) -> ReferredCase:
    name = rule.score.replace("_", " ")
    if row.error:
        reason = _UNREADABLE
    elif UNLIKE_TRAINING in row.flags:
        reason = UNLIKE_TRAINING
    elif value < 0:
        reason = _NOTHING
    elif math.isinf(rule.threshold):
        reason = "the target was not reached on validation"
    elif value < rule.threshold:
        reason = f"{name} {value:.3f} is below {rule.threshold:.3f}"
    else:
        reason = ""
    return ReferredCase(row.case, value, reason)


def _urgency(found: ReferredCase) -> int:
    known = {_UNREADABLE: 0, UNLIKE_TRAINING: 1, "": 3}
    return known.get(found.reason, 2)
