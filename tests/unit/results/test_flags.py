"""Flags: one reason to refer a case, and notes, by limits of the validation images."""

import math
from dataclasses import replace

import pytest

from segconf.calibration.stored import Calibration, StoredNote, StoredReferral
from segconf.results.flags import with_flags
from segconf.results.rows import EMPTY_MASK, OUT_OF_DISTRIBUTION, CaseRow

RULE = StoredReferral(
    score="border_confidence",
    threshold=0.7,
    refer_fraction=0.2,
    reserved=0.05,
    fraction=0.15,
    kept_dice=0.9,
    kept_dice_interval=(0.85, 0.95),
    target_dice=0.85,
    target_fraction=0.1,
    images=20,
)
NOTES = (
    StoredNote(column="expected_dice", limit=0.6, high=False, fraction=0.05, images=20),
    StoredNote(column="border_confidence", limit=0.65, high=False, fraction=0.05, images=20),
    StoredNote(column="shaded_fraction", limit=0.3, high=True, fraction=0.05, images=20),
)
CALIBRATION = Calibration(referral=RULE, notes=NOTES)
GOOD = CaseRow(
    "a",
    "a.png",
    foreground_fraction=0.2,
    border_confidence=0.8,
    expected_dice=0.9,
    shaded_fraction=0.1,
    ood_score=5.0,
)
BORDER, OUTLINE = "low confidence along the border", "the outline is probably off"
LARGE = "low confidence in a large part of the image"


def flags(calibration=CALIBRATION, remarks=(), **changes):
    row = replace(GOOD, **changes)
    return with_flags(row, calibration, ood_limit=8.0, remarks=remarks).flags


def test_an_ordinary_case_has_no_flags():
    assert flags() == ()
    assert flags(border_confidence=0.7) == ()  # at the limit is not below it


def test_one_reason_and_the_rest_are_notes():
    assert flags(border_confidence=0.69) == (BORDER,)
    # Below the limit of its note as well, but it is said once.
    assert flags(border_confidence=0.5) == (BORDER,)
    bad = {"border_confidence": 0.5, "expected_dice": 0.4, "shaded_fraction": 0.5}
    assert flags(**bad) == (BORDER, f"note: {OUTLINE}", f"note: {LARGE}")
    assert flags(**bad, ood_score=9.0) == (
        OUT_OF_DISTRIBUTION, f"note: {BORDER}", f"note: {OUTLINE}", f"note: {LARGE}"
    )  # fmt: skip
    assert flags(expected_dice=0.4) == (f"note: {OUTLINE}",)


def test_remarks_of_the_reader_are_reasons_or_notes():
    remarks = ("too few pixels: 8 x 8", "note: a graymap")
    assert flags(remarks=remarks, ood_score=9.0) == (
        "too few pixels: 8 x 8", f"note: {OUT_OF_DISTRIBUTION}", "note: a graymap"
    )  # fmt: skip


def test_nothing_found_is_a_reason_unless_it_is_usual():
    nothing = {"foreground_fraction": 0.0, "border_confidence": math.nan, "expected_dice": math.nan}
    assert flags(**nothing) == (EMPTY_MASK,)
    usual = CALIBRATION.model_copy(update={"referral": RULE.model_copy(update={"threshold": -1.0})})
    assert flags(usual, **nothing) == (f"note: {EMPTY_MASK}",)


def test_a_border_that_is_not_there_is_referred_as_it_was_on_validation_images():
    # The mask covers the image: no border, so the score counts as the lowest.
    assert flags(border_confidence=math.nan, foreground_fraction=1.0) == (BORDER,)


def test_a_model_without_a_calibration_refers_only_what_needs_no_limit():
    nothing = Calibration()
    assert flags(nothing, border_confidence=0.1, expected_dice=0.0) == ()
    assert flags(nothing, foreground_fraction=0.0) == (EMPTY_MASK,)
    assert flags(nothing, ood_score=9.0) == (OUT_OF_DISTRIBUTION,)
    assert with_flags(GOOD, nothing, ood_limit=None).flags == ()


@pytest.mark.parametrize("column", ["mean_confidence", "patch_confidence", "foreground_confidence"])
def test_every_score_has_words(column):
    rule = CALIBRATION.model_copy(update={"referral": RULE.model_copy(update={"score": column})})
    (reason,) = flags(rule, **{column: 0.2})
    assert reason.startswith("low confidence")
