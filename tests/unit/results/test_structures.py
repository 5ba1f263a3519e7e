"""Structures: numbers of every class, by pencil and paper and by slow loops."""

import csv
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from segconf.images.orientation import Orientation
from segconf.images.types import Image
from segconf.results.maps import Band, Maps
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.results.structures import (
    STRUCTURES_HEAD,
    count_components,
    find_structures,
    structure_lines,
    with_geometry,
    write_structures,
)
from segconf.results.summary import summarize

ROW = CaseRow("a", "a.nii.gz", 6, 7)


def maps_of(logits):
    """Maps from logits (D, K, H, W)."""
    slices, classes, height, width = logits.shape
    maps = Maps.empty((slices, height, width), classes=classes, probabilities=False)
    for index, one in enumerate(logits):
        maps.fill(index, [Band(0, one[:, :2].copy()), Band(2, one[:, 2:].copy())])
    return maps


def random_logits(classes, slices=3):
    rng = np.random.default_rng(classes)
    return rng.normal(0, 3, (slices, classes, 6, 7)).astype(np.float32)


def volume(spacing):
    pixels = np.zeros((1, 3, 6, 7), np.uint8)
    return Image(pixels, Path("a"), spacing=spacing, orientation=Orientation(directions="SPL"))


def slow_components(found):
    """Flood fill over all neighbours, corners included."""
    left = set(zip(*np.nonzero(found), strict=True))
    count = 0
    while left:
        count += 1
        waiting = [left.pop()]
        while waiting:
            d, h, w = waiting.pop()
            for step in itertools.product((-1, 0, 1), repeat=3):
                near = (d + step[0], h + step[1], w + step[2])
                if near in left:
                    left.remove(near)
                    waiting.append(near)
    return count


@pytest.mark.parametrize("shape", [(1, 9, 12), (4, 9, 12)])
def test_components_equal_a_flood_fill(shape):
    rng = np.random.default_rng(0)
    for fraction in (0, 0.05, 0.2, 0.5, 1):
        found = (rng.random(shape) < fraction).astype(np.uint8)
        assert count_components(found) == slow_components(found)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_every_class_equals_the_slow_loop(classes):
    logits = random_logits(classes)
    powers = np.exp(logits.astype(np.float64))
    probabilities = powers / powers.sum(axis=1, keepdims=True)  # (D, K, H, W)
    maps = maps_of(logits)
    row = summarize(with_geometry(ROW, volume((2.5, 0.5, 0.4))), maps, shaded=0.7)
    found = find_structures(row, maps)
    assert [structure.class_index for structure in found] == list(range(1, classes))
    for structure in found:
        own = probabilities[:, structure.class_index]  # (D, H, W)
        chosen = probabilities.argmax(axis=1) == structure.class_index
        assert structure.pixels == chosen.sum()
        assert structure.volume_mm3 == pytest.approx(chosen.sum() * 2.5 * 0.5 * 0.4)
        assert math.isnan(structure.area_mm2)
        assert structure.components == slow_components(chosen)
        assert structure.mean_confidence == pytest.approx(own[chosen].mean(), abs=1e-5)
        expected = 2 * own[chosen].sum() / (own.sum() + chosen.sum())
        assert structure.expected_dice == pytest.approx(expected, abs=1e-5)


def test_area_of_one_slice_and_unknown_spacing():
    maps = maps_of(random_logits(2, slices=1))
    flat = Image(np.zeros((1, 6, 7), np.uint8), Path("a"), spacing=(0.5, 0.25))
    (known,) = find_structures(with_geometry(ROW, flat), maps)
    assert known.area_mm2 == known.pixels * 0.125
    assert math.isnan(known.volume_mm3)
    (unknown,) = find_structures(with_geometry(ROW, replace(flat, spacing=None)), maps)
    assert (unknown.pixels, math.isnan(unknown.area_mm2)) == (known.pixels, True)


def test_a_class_that_was_not_found():
    logits = np.full((1, 3, 6, 7), -200, np.float32)
    logits[:, 0] = 0
    first, _ = find_structures(ROW, maps_of(logits))
    assert (first.pixels, first.components) == (0, 0)
    for value in (first.mean_confidence, first.border_confidence, first.expected_dice):
        assert math.isnan(value)


def test_geometry_of_a_row():
    row = with_geometry(ROW, volume((2.5, 0.5, 0.4)))
    assert (row.slice_mm, row.row_mm, row.column_mm, row.marks) == (2.5, 0.5, 0.4, "RLAP")
    plain = with_geometry(ROW, Image(np.zeros((3, 6, 7), np.uint8), Path("a.png")))
    assert (math.isnan(plain.row_mm), plain.marks) == (True, "")


def test_tables_of_cases_become_one(tmp_path):
    folder = PredictionFolder(tmp_path)
    folder.structures("a").parent.mkdir(parents=True)
    rows = [replace(ROW, case=name) for name in ("=a", "b", "earlier")]
    rows.append(replace(ROW, case="broken", error="unreadable"))
    for row in rows[:2]:
        write_structures(folder, row, maps_of(random_logits(3)))
    text = [STRUCTURES_HEAD, *(line for row in rows for line in structure_lines(folder, row))]
    lines = list(csv.DictReader(text))
    # A spreadsheet would take =a for a formula.
    assert [line["case"] for line in lines] == ["'=a", "'=a", "b", "b"]
    assert [line["class_index"] for line in lines] == ["1", "2", "1", "2"]
    assert lines[0]["volume_mm3"] == ""
