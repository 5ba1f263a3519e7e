"""Which cases a run refers to an expert: the score and the threshold chosen on validation."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

from segconf.errors import CheckpointError
from segconf.review.folder import DEFAULT_ORDER

FILE_NAME = "triage.json"
SCORES = (
    "expected_dice",
    "mean_confidence",
    "border_confidence",
    "patch_confidence",
    "foreground_confidence",
)
"""Columns of `cases.csv` that say how good a case probably is, high = good."""


@dataclass(frozen=True, slots=True)
class ReferralRule:
    """Refer the cases whose score is below the threshold.

    Attributes:
        score: a column of `cases.csv`, the best of them on validation images.
        threshold: what reached the target on validation; infinite where nothing did.
        target_dice: mean Dice that the cases that are not referred should have.
        share: of the validation cases that were referred to reach it.
    """

    score: str = DEFAULT_ORDER
    threshold: float = math.inf
    target_dice: float = math.nan
    share: float = math.nan


def read_referral_rule(run: Path) -> ReferralRule | None:
    """The rule in a run folder, or beside a weights file; None where there is none."""
    path = (run if run.is_dir() else run.parent) / FILE_NAME
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        threshold = math.inf if values["threshold"] is None else float(values["threshold"])
        rule = ReferralRule(
            values["score"], threshold, float(values["target_dice"]), float(values["share"])
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: not a referral rule ({error}). Remove it, or run `segconf triage` again."
        ) from error
    if rule.score not in SCORES:
        raise CheckpointError(
            f"{path}: unknown score {rule.score}. Remove it, or run `segconf triage` again."
        )
    return rule
