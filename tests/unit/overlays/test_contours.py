"""Lines that keep a promise: which pixels they surround, how they look, when there are none."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from segconf.overlays.contours import (
    COLOURS,
    dashes,
    empty_regions,
    fill_regions,
    regions_of_maps,
    shown_contours,
)
from segconf.overlays.layers import Contour, Scale, Step
from segconf.overlays.overlay import Style, overlay
from segconf.results.maps import Band, Maps
from segconf.results.rows import OUT_OF_DISTRIBUTION, CaseRow
from segconf.review.pictures import case_scale

OUTER, INNER = Contour("outer", 1, 0.05, 0.25), Contour("inner", 1, 0.05, 0.875)
SCALE = Scale((Step(2, 0.5),), 2, 2, contours=(OUTER, INNER))


def hill():
    """Confidence of a lesion that fades out from the middle, its mask, and the probability."""
    rows, columns = np.mgrid[:600, :800]
    distance = np.hypot(rows - 300, columns - 400)
    probability = (1 / (1 + np.exp((distance - 150) / 20))).astype(np.float32)
    mask = (probability > 0.5).astype(np.uint8)
    return mask, np.where(mask, probability, 1 - probability).astype(np.float32), probability


def test_the_smallest_promise_of_each_kind_and_class_is_shown():
    loose = Contour("outer", 1, 0.1, 0.4)
    other = Contour("outer", 2, 0.1, 0.3)
    assert shown_contours([loose, OUTER, INNER, other]) == (OUTER, INNER, other)


def test_regions_follow_from_the_maps_of_two_classes():
    mask, confidence, probability = hill()
    regions = regions_of_maps(mask, confidence, (OUTER, INNER))
    assert regions.dtype == np.uint8
    np.testing.assert_array_equal(regions & 1, probability >= 0.25)
    np.testing.assert_array_equal(regions >> 1, probability >= 0.875)


def test_more_classes_than_bits_of_a_byte():
    contours = [Contour("outer", label, 0.1, 0.05) for label in range(1, 12)]
    probabilities = np.full((12, 2, 2), 0.01)
    probabilities[11] = 0.89
    regions = fill_regions(empty_regions((2, 2), contours), probabilities, contours)
    assert regions.tolist() == [[1 << 10] * 2] * 2


def test_maps_of_three_classes_keep_their_regions():
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (3, 8, 9)).astype(np.float32)
    second = Contour("inner", 2, 0.1, 0.6)
    maps = Maps.empty((1, 8, 9), classes=3, probabilities=True, contours=(OUTER, second))
    maps.fill(0, [Band(0, logits[:, :5]), Band(5, logits[:, 5:])])
    np.testing.assert_array_equal(maps.regions[0] & 1, maps.probabilities[1, 0] >= 0.25)
    np.testing.assert_array_equal(maps.regions[0] >> 1, maps.probabilities[2, 0] >= 0.6)
    assert Maps.empty((1, 8, 9), classes=2, probabilities=False, contours=(OUTER,)).regions is None


def is_near(picture, colour):
    return (np.abs(picture.astype(int) - colour) < 40).all(axis=-1)


@pytest.mark.parametrize("style", get_args(Style))
def test_both_lines_lie_on_their_side_of_the_outline(style):
    mask, confidence, _ = hill()
    picture = overlay(
        np.full((3, 600, 800), 120, np.uint8), mask, confidence, style=style, scale=SCALE
    )
    shown = picture[:600, :800].copy()
    radius = np.hypot(*(np.mgrid[:600, :800] - np.array([300, 400])[:, None, None]))
    # p = 0.25 at 150 + 20 log 3 = 172; p = 0.875 at 150 - 20 log 7 = 111.
    for kind, expected in (("outer", 172), ("inner", 111)):
        found = radius[is_near(shown, COLOURS[kind]) & (np.abs(radius - expected) < 8)]
        assert len(found) > 100, kind
        assert np.median(found) == pytest.approx(expected, abs=2)
    plain = overlay(
        np.full((3, 600, 800), 120, np.uint8), mask, confidence, style=style,
        scale=SCALE.without_contours(),
    )  # fmt: skip
    assert not is_near(plain[:600, :800], COLOURS["outer"])[radius > 160].any()
    assert len(plain) < len(picture)  # the legend says nothing about lines that are not there


def test_dashes_have_gaps_and_dots_are_shorter():
    line = np.stack([np.arange(400), np.zeros(400, int)], axis=1)
    for kind, dash, gap in (("outer", 18, 10), ("inner", 4, 8)):
        pieces = dashes(line, kind, 1)
        assert {len(piece) for piece in pieces[:-1]} == {dash}
        starts = [piece[0, 0] for piece in pieces]
        assert set(np.diff(starts)) == {dash + gap}


def test_the_edge_of_the_picture_is_no_line():
    mask, confidence = np.ones((600, 800), np.uint8), np.ones((600, 800), np.float32)
    picture = overlay(
        np.full((3, 600, 800), 120, np.uint8), mask, confidence, style="contour", scale=SCALE
    )
    assert not is_near(picture[:600], COLOURS["outer"]).any()


def test_three_classes_without_regions_show_no_lines():
    mask, confidence, probability = hill()
    scale = Scale((Step(2, 0.5),), 2, 2, classes=3, contours=(OUTER, INNER))
    image = np.full((3, 600, 800), 120, np.uint8)
    bare = overlay(image, mask, confidence, style="contour", scale=scale)
    np.testing.assert_array_equal(
        bare, overlay(image, mask, confidence, style="contour", scale=scale.without_contours())
    )
    probabilities = np.stack([1 - probability, probability, 0 * probability])
    regions = fill_regions(empty_regions(mask.shape, (OUTER, INNER)), probabilities, (OUTER, INNER))
    drawn = overlay(image, mask, confidence, style="contour", scale=scale, regions=regions)
    assert is_near(drawn[:600], COLOURS["outer"]).any()


def test_the_promise_in_words():
    assert OUTER.words() == "the outer line misses at most 5% of a lesion, on average"
    assert INNER.words() == "at most 5% inside the inner line is not lesion, on average"


def test_nothing_is_promised_out_of_distribution():
    row = CaseRow("case", "case.png")
    assert case_scale(SCALE, row).contours == (OUTER, INNER)
    assert case_scale(SCALE, replace(row, flags=(OUT_OF_DISTRIBUTION,))).contours == ()
