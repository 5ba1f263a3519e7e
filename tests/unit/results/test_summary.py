"""The numbers of a row, by hand and against slow loops."""

import csv
import math

import numpy as np
import pytest

from segconf.results.maps import Maps
from segconf.results.rows import TABLE_HEAD, CaseRow, case_line, read_row
from segconf.results.summary import border_confidence, level_counts, percentile, summarize

FULL = 65535
ROW = CaseRow("a/b", "a/b.jpg", 2, 4)


def slow_border(mask, levels, radius):
    """Mean over pixels whose square window holds both foreground and background."""
    values = []
    for plane, confidence in zip(mask, levels, strict=True):
        for r in range(plane.shape[0]):
            for c in range(plane.shape[1]):
                window = plane[
                    max(0, r - radius) : r + radius + 1, max(0, c - radius) : c + radius + 1
                ]
                if (window > 0).any() and not (window > 0).all():
                    values.append(confidence[r, c] / FULL)
    return sum(values) / len(values) if values else math.nan


def test_two_by_four_pixels_worked_by_hand():
    mask = np.array([[[0, 0, 1, 1], [0, 0, 0, 1]]], np.uint8)
    confidence = np.array([[[1.0, 0.8, 0.6, 0.9], [1.0, 1.0, 0.6, 0.8]]])
    levels = np.rint(confidence * FULL).astype(np.uint16)
    foreground = 0 + 0.2 + 0.6 + 0.9 + 0 + 0 + 0.4 + 0.8  # 2.9
    overlap = 0.6 + 0.9 + 0.8  # 2.3
    maps = Maps(mask, levels, foreground, overlap)

    row = summarize(ROW, maps, shaded=0.7)

    assert row.foreground_fraction == 3 / 8
    assert row.mean_confidence == pytest.approx(6.7 / 8, abs=1e-5)
    assert row.confidence_p05 == pytest.approx(0.6, abs=1e-5)
    assert row.shaded_fraction == 2 / 8
    assert row.expected_dice == pytest.approx(2 * 2.3 / (2.9 + 3))  # 0.78
    # The band (radius 1): all but the first column.
    assert row.border_confidence == pytest.approx((0.8 + 0.6 + 0.9 + 1 + 0.6 + 0.8) / 6, abs=1e-5)
    assert row.flags == ()  # numbers only


def test_numbers_of_an_empty_mask():
    empty = Maps(np.zeros((1, 4, 4), np.uint8), np.full((1, 4, 4), FULL, np.uint16), 0.0, 0.0)
    row = summarize(ROW, empty, shaded=0.7, ood_score=3.5)
    assert (row.foreground_fraction, row.ood_score) == (0, 3.5)
    assert math.isnan(row.expected_dice)  # nothing was found and nothing was thought possible
    (line,) = csv.DictReader([TABLE_HEAD, case_line(row)])
    assert line["expected_dice"] == ""
    assert math.isnan(row.border_confidence)


@pytest.mark.parametrize("shape", [(1, 9, 12), (2, 60, 45), (1, 130, 120)])
def test_border_equals_the_slow_loop(shape):
    rng = np.random.default_rng(5)
    mask = np.zeros(shape, np.uint8)
    mask[:, shape[1] // 3 : shape[1] // 2, shape[2] // 4 :] = 1  # reaches the edge of the image
    mask[0, 1, 1] = 2
    levels = rng.integers(FULL // 2, FULL, shape, np.uint16)
    radius = max(1, round(0.02 * math.hypot(*shape[1:])))

    assert border_confidence(mask, levels) == pytest.approx(slow_border(mask, levels, radius))


def test_a_mask_that_covers_everything_has_no_border():
    levels = np.full((1, 5, 5), FULL, np.uint16)
    assert math.isnan(border_confidence(np.ones((1, 5, 5), np.uint8), levels))


def test_counts_and_percentiles_equal_sorting():
    levels = np.random.default_rng(6).integers(0, FULL + 1, (3, 70, 90), np.uint16)
    counts = level_counts(levels)
    np.testing.assert_array_equal(counts, np.bincount(levels.reshape(-1), minlength=FULL + 1))
    ordered = np.sort(levels.reshape(-1))
    for fraction in (0.05, 0.5, 0.999):
        assert (
            percentile(counts, fraction) == ordered[math.ceil(fraction * len(ordered)) - 1] / FULL
        )


def test_the_slice_to_look_at_has_most_unsure_pixels_then_most_foreground():
    mask = np.zeros((4, 3, 3), np.uint8)
    mask[1] = mask[2] = 1
    levels = np.full(mask.shape, FULL, np.uint16)
    row = summarize(ROW, Maps(mask, levels), shaded=0.7)
    assert (row.slices, row.slice) == (4, 1)
    levels[3, 0, 0] = 40000
    assert summarize(ROW, Maps(mask, levels), shaded=0.7).slice == 3


def test_rows_survive_json_and_become_a_table(tmp_path):
    row = CaseRow("ä, b", 'x"y.png', 2, 3, expected_dice=0.25, flags=("one", "two"))
    (tmp_path / "row.json").write_text(row.to_json(), encoding="utf-8")
    again = read_row(tmp_path / "row.json", row.case)
    assert again.to_json() == row.to_json()
    assert math.isnan(again.mean_confidence)

    (line,) = csv.DictReader([TABLE_HEAD, case_line(row)])
    filled = {name: value for name, value in line.items() if value}
    assert filled == {
        "case": "ä, b",
        "file": 'x"y.png',
        "height": "2",
        "width": "3",
        "slices": "1",
        "slice": "0",
        "expected_dice": "0.250000",
        "severity": "refer",
        "flags": "one; two",
    }
    assert list(line)[:3] == ["case", "group", "file"]


@pytest.mark.parametrize(
    ("flags", "severity"),
    [
        ((), ""),
        (("note: grey image",), "note"),
        (("low confidence along the border", "note: grey image"), "refer"),
    ],
)
def test_severity_follows_from_the_flags_and_is_a_column(tmp_path, flags, severity):
    row = CaseRow("a", "a.png", flags=flags)
    assert (row.severity, row.is_referred) == (severity, severity == "refer")
    header, line = (text.split(",") for text in (TABLE_HEAD.strip(), case_line(row).strip()))
    assert line[header.index("severity")] == severity
    (tmp_path / "row.json").write_text(row.to_json(), encoding="utf-8")
    assert read_row(tmp_path / "row.json", "a").severity == severity
