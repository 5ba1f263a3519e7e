"""`calibration.json`: what it holds comes back, anything else is refused."""

import json

import pytest

from segconf.calibration.stored import (
    Calibration,
    StoredContour,
    StoredContourCurve,
    StoredErrorRates,
    StoredNote,
    StoredReferral,
    StoredTemperature,
    StoredThreshold,
    read_calibration,
    write_calibration,
)
from segconf.errors import CheckpointError

HASH = "ab" * 32
FULL = Calibration(
    weights_sha256=HASH,
    temperature=StoredTemperature(
        value=1.3, interval=(1.1, 1.5), nll_before=0.31, nll=0.25, images=20
    ),
    threshold=StoredThreshold(
        confidence=0.9,
        max_risk=0.02,
        risk=0.019,
        risk_interval=(0.01, 0.03),
        coverage=0.8,
        coverage_interval=(0.7, 0.9),
        images=20,
    ),
    error_rates=StoredErrorRates(
        confidence=(0.5, 0.8, 0.99), pixels=(10, 40, 950), wrong=(4, 6, 5), images=20
    ),
    referral=StoredReferral(
        score="border_confidence",
        threshold=0.6,
        refer_fraction=0.2,
        reserved=0.05,
        fraction=0.15,
        kept_dice=0.88,
        kept_dice_interval=(0.8, 0.93),
        target_dice=0.85,
        target_fraction=0.1,
        images=20,
    ),
    contours=(
        StoredContour(
            kind="outer", class_index=1, alpha=0.1, threshold=0.2, risk=0.06, groups=20, images=20
        ),
    ),
    contour_curves=(
        StoredContourCurve(kind="outer", class_index=1, points=((0.1, 0.2), (0.2, 0.3))),
    ),
    notes=(
        StoredNote(column="border_confidence", limit=0.7, high=False, fraction=0.05, images=20),
        StoredNote(column="shaded_fraction", limit=0.3, high=True, fraction=0.05, images=20),
    ),
)


def test_calibration_of_a_run_and_its_default(tmp_path):
    default = read_calibration(tmp_path, HASH)
    assert default == Calibration(weights_sha256=HASH)
    assert (default.temperature, default.threshold, default.error_rates) == (None, None, None)
    # Not measured: a confidence of 75% is taken to be wrong 1 time in 4.
    scale = default.scale(2)
    assert (scale.measured, scale.striped, scale.shaded) == (False, 0.75, 0.9)
    assert default.order == "expected_dice"
    write_calibration(tmp_path, FULL)
    found = read_calibration(tmp_path / "best.safetensors", HASH)
    assert found == FULL
    # Wrong 4 of 10, 6 of 40 and 5 of 950 times.
    scale = found.scale(2)
    assert (scale.measured, scale.striped, scale.shaded) == (True, 0.8, 0.99)
    assert found.order == "border_confidence"


@pytest.mark.parametrize("broken", ["{}", "[]", '{"threshold": 2}', "no json", "", "\xff"])
def test_broken_files_are_refused(tmp_path, broken):
    (tmp_path / "calibration.json").write_text(broken, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"calibration\.json.*segconf calibrate"):
        read_calibration(tmp_path, HASH)


def test_calibration_of_other_weights_is_refused_with_the_command(tmp_path):
    write_calibration(tmp_path, FULL)
    with pytest.raises(CheckpointError) as refusal:
        read_calibration(tmp_path, "cd" * 32)
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path / 'calibration.json'}: belongs to other weights")
    assert f"segconf calibrate {tmp_path}" in message


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("temperature.value", float("nan")),
        ("temperature.value", float("inf")),
        ("temperature.value", 0.0),
        ("temperature.value", "1.3"),
        ("temperature.value", None),
        ("temperature.interval", [1.1]),
        ("temperature.interval", [float("nan"), 1.5]),
        ("temperature.images", 20.5),
        ("temperature.images", True),
        ("threshold.confidence", 1.1),
        ("threshold.risk", -0.1),
        ("threshold.coverage_interval", None),
        ("referral.threshold", float("nan")),
        ("referral.score", 3),
        ("error_rates.wrong", [1, -1, 0]),
        ("error_rates.pixels", [0, 1, 2]),
        ("format", "segconf calibration 1"),
        ("temperature.unknown", 1.0),
        ("unknown", 1.0),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_place(tmp_path, place, value):
    content = json.loads(FULL.model_dump_json())
    *sections, key = place.split(".")
    (content[sections[0]] if sections else content)[key] = value
    (tmp_path / "calibration.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError) as refusal:
        read_calibration(tmp_path, HASH)
    message = str(refusal.value)
    assert message.startswith(f"{tmp_path / 'calibration.json'}: ")
    assert f"segconf calibrate {tmp_path}" in message
    # JSON has no NaN and no infinity: what is not JSON may be refused as such.
    assert place in message or "Invalid JSON" in message


def test_empty_masks_are_referred_unless_many_validation_cases_had_them():
    rule = FULL.referral
    assert rule.refers_empty
    # The threshold is the score of an empty mask where more than the budget had one.
    assert not rule.model_copy(update={"threshold": -1.0}).refers_empty
    assert rule.reaches_target
    assert not rule.model_copy(update={"kept_dice": 0.84}).reaches_target


def test_notes_are_on_the_far_side_of_their_limit():
    low, high = FULL.notes
    assert [low.is_beyond(value) for value in (0.69, 0.7, float("nan"))] == [True, False, False]
    assert [high.is_beyond(value) for value in (0.3, 0.31, float("nan"))] == [False, True, False]
