"""The sheet of a case: nothing that it says is cut, and its contours are those of the maps."""

import numpy as np
import PIL.ImageDraw
import pytest

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
    return np.asarray(case_sheet(row, image, maps, (scale, scale), View(), regions=regions))


def test_no_reason_is_cut():
    many = tuple(f"note: reason {number} that takes some words to say" for number in range(8))
    pages = [sheet((*many, last)) for last in ("this", "that")]
    assert (pages[0] != pages[1]).any()
    assert (pages[0][:, -70:] == 255).all()  # the margin


@pytest.mark.parametrize(
    ("measured", "named"),
    [(True, "Area wrong more than 1 in 10"), (False, "Area below confidence 90%")],
)
def test_the_shaded_area_is_named_by_the_scale_of_the_prediction(monkeypatch, measured, named):
    written = []
    monkeypatch.setattr(
        PIL.ImageDraw.ImageDraw,
        "text",
        lambda _draw, _place, words, *_, **__: written.append(words),
    )
    predicted = Scale((Step(4, 0.75), Step(10, 0.9), Step(20, 0.95)), 4, 10, measured=measured)
    row = CaseRow("a", "a.png", 4, 4, shaded_fraction=0.25)
    maps = np.zeros((4, 4), np.uint8), np.zeros((4, 4), np.uint16)
    pixels = np.zeros((3, 4, 4), np.uint8)
    case_sheet(row, pixels, maps, (predicted.shading(20), predicted), View())
    assert written[written.index(named) + 1] == "25%"


def test_contours_of_several_classes_are_drawn():
    regions = np.zeros((60, 80), np.uint8)
    regions[10:50, 10:60] = 1
    assert (sheet(regions=regions) != sheet()).any()
