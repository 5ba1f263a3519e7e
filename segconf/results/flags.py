"""Flags of a case: at most one reason to refer it to an expert, and notes.

What counts as low is what was low on the validation images: `calibrate` fits the limits, and no
number is fixed here. A case is referred for the first of these reasons that applies; the others
become notes:

1. its file is unusual in a way that spoils the prediction, such as a few pixels only,
2. it is out of distribution, so that its confidence means little,
3. nothing was found in it, which few validation images share,
4. its score, the one that ordered the validation images best, is below the limit.

A note informs and calls for nothing. A model without a calibration refers by the first three only.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from segconf.calibration.stored import EMPTY_SCORE, Calibration
from segconf.results.rows import EMPTY_MASK, NOTE, OUT_OF_DISTRIBUTION, CaseRow

REASONS = {
    "expected_dice": "the outline is probably off",
    "border_confidence": "low confidence along the border",
    "foreground_confidence": "low confidence within the outline",
    "patch_confidence": "low confidence in one part of the image",
    "mean_confidence": "low confidence over the whole image",
    "shaded_fraction": "low confidence in a large part of the image",
}
"""What it means that a column of `cases.csv` is beyond its limit."""


def with_flags(
    row: CaseRow, calibration: Calibration, *, ood_limit: float | None, remarks: Sequence[str] = ()
) -> CaseRow:
    """The row with its flags: the main reason first, then notes.

    Args:
        row: with all its numbers.
        calibration: of the model that predicted it.
        ood_limit: out-of-distribution score above which a case is referred, if there is a detector.
        remarks: what came up when the file was read; those that are no notes are reasons.
    """
    reasons = reasons_to_refer(row, calibration, ood_limit=ood_limit, remarks=remarks)
    notes = [remark.removeprefix(NOTE) for remark in remarks if remark.startswith(NOTE)]
    notes += [] if row.foreground_fraction else [EMPTY_MASK]
    notes += [
        REASONS[one.column] for one in calibration.notes if one.is_beyond(getattr(row, one.column))
    ]
    further = dict.fromkeys((*reasons[1:], *notes))  # in order, each once
    flags = [f"{NOTE}{words}" for words in further if words not in reasons[:1]]
    return replace(row, flags=(*reasons[:1], *flags))


def reasons_to_refer(
    row: CaseRow, calibration: Calibration, *, ood_limit: float | None, remarks: Sequence[str] = ()
) -> list[str]:
    """All reasons to refer a case, the main one first; see `with_flags`."""
    found = [remark for remark in remarks if not remark.startswith(NOTE)]
    if ood_limit is not None and row.ood_score > ood_limit:
        found.append(OUT_OF_DISTRIBUTION)
    rule = calibration.referral
    is_empty = row.foreground_fraction == 0
    if is_empty and (rule is None or rule.refers_empty):
        found.append(EMPTY_MASK)
    if rule is not None and not is_empty and _score(row, rule.score) < rule.threshold:
        found.append(REASONS[rule.score])
    return found


def _score(row: CaseRow, name: str) -> float:
    value: float = getattr(row, name)
    return EMPTY_SCORE if math.isnan(value) else value
