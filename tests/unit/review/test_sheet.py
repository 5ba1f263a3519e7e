"""The sheet of a case: nothing that it says is cut, and its contours are those of the maps."""

import numpy as np

from segconf.overlays.layers import Contour, Scale, Step
from segconf.overlays.view import View
from segconf.results.rows import CaseRow
from segconf.review.sheet import case_sheet

OUTER = Contour("outer", 1, 0.05, 0.25)


def sheet(flags=(), *, regions=None):
    mask = np.zeros((60, 80), np.uint8)
    mask[20:40, 20:50] = 1
    maps = mask, np.full((60, 80), 60_000, np.uint16)
    scale = Scale((Step(2, 0.5),), 2, 2, classes=3, contours=(OUTER,))
    row = CaseRow("a", "a.png", 60, 80, flags=flags)
    image = np.full((3, 60, 80), 120, np.uint8)
    return np.asarray(case_sheet(row, image, maps, scale, View(), regions=regions))


def test_no_reason_is_cut():
    many = tuple(f"note: reason {number} that takes some words to say" for number in range(8))
    pages = [sheet((*many, last)) for last in ("this", "that")]
    assert (pages[0] != pages[1]).any()
    assert (pages[0][:, -70:] == 255).all()  # the margin


def test_contours_of_several_classes_are_drawn():
    regions = np.zeros((60, 80), np.uint8)
    regions[10:50, 10:60] = 1
    assert (sheet(regions=regions) != sheet()).any()
