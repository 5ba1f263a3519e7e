"""`calibration.json`: what it holds comes back, anything else is refused."""

import json

import pytest

from segconf.calibration.stored import (
    Calibration,
    StoredContour,
    StoredContourCurve,
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
        right_below=0.71,
        images=20,
    ),
    referral=StoredReferral(
        score="border_confidence",
        threshold=0.6,
        target_dice=0.85,
        fraction=0.25,
        kept_dice=0.88,
        kept_dice_interval=(0.8, 0.93),
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
)


def test_calibration_of_a_run_and_its_default(tmp_path):
    default = read_calibration(tmp_path, HASH)
    assert default == Calibration(weights_sha256=HASH)
    assert (default.lower_level, default.temperature, default.threshold) == (0.7, None, None)
    assert default.upper_level == pytest.approx(0.85)
    assert default.order == "expected_dice"
    write_calibration(tmp_path, FULL)
    found = read_calibration(tmp_path / "best.safetensors", HASH)
    assert found == FULL
    assert (found.lower_level, found.threshold.max_risk) == (0.9, 0.02)
    assert found.threshold.right_below == 0.71
    assert found.upper_level == pytest.approx(0.95)
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


def test_where_no_case_is_kept_all_are_referred(tmp_path):
    nothing = FULL.referral.model_copy(
        update={"threshold": None, "kept_dice": None, "kept_dice_interval": None, "fraction": 1.0}
    )
    write_calibration(tmp_path, FULL.model_copy(update={"referral": nothing}))
    found = read_calibration(tmp_path, HASH).referral
    assert found == nothing
    assert found.limit == float("inf")
    assert FULL.referral.limit == 0.6
