"""Overlays: what is tinted, what is not, and the legend outside of the image."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from segconf.images.orientation import Orientation
from segconf.images.types import Image
from segconf.overlays.layers import LOW_COLOUR, MIDDLE_COLOUR, Scale, Step
from segconf.overlays.overlay import Style, overlay, sampled, shown_image
from segconf.overlays.view import View

STEPS = (Step(2, 0.5), Step(4, 0.7), Step(10, 0.85), Step(20, 0.95))
SCALE = Scale(STEPS, 4, 10)
GREY = 120


def flat(height=600, width=800):
    image = np.full((3, height, width), GREY, np.uint8)
    return image, np.zeros((height, width), np.uint8), np.ones((height, width), np.float32)


def blended(colour, opacity):
    return [round(GREY * (1 - opacity) + opacity * part) for part in colour]


def test_confident_pixels_are_left_alone_and_the_legend_is_outside():
    image, mask, confidence = flat()
    picture = overlay(image, mask, confidence, style="contour", scale=SCALE)
    assert (picture[:600] == GREY).all()
    assert picture.shape[0] > 600
    assert picture.shape[1:] == (800, 3)


def test_low_confidence_is_tinted_in_two_bands_at_fixed_levels():
    image, mask, confidence = flat()
    confidence[100:200] = 0.6999
    confidence[300:400] = 0.7001
    confidence[500:600] = 0.8501
    picture = overlay(image, mask, confidence, style="contour", scale=SCALE)

    low = {tuple(colour) for colour in picture[100:200].reshape(-1, 3)}
    # Stripes and the gaps between them: told from the other band without colour.
    assert low == {tuple(blended(LOW_COLOUR, 0.2)), tuple(blended(LOW_COLOUR, 0.75))}
    assert (picture[300:400] == blended(MIDDLE_COLOUR, 0.22)).all()
    assert (picture[500:600] == GREY).all()


def test_levels_of_a_saved_map_give_the_same_picture():
    image, mask, confidence = flat()
    confidence[:] = np.linspace(0.5, 1, 800, dtype=np.float32)
    levels = np.rint(confidence * 65535).astype(np.uint16)
    mask[200:400, 200:400] = 1
    for style in get_args(Style):
        one = overlay(image, mask, levels / np.float32(65535), style=style, scale=SCALE)
        other = overlay(image, mask, levels, style=style, scale=SCALE)
        np.testing.assert_array_equal(one, other)


def test_the_contour_has_a_dark_and_a_light_line_on_any_skin():
    for skin in (0, 255):
        image, mask, confidence = flat()
        image[:] = skin
        mask[200:400, 300:500] = 1
        picture = overlay(image, mask, confidence, style="contour", scale=SCALE)
        across = picture[300, 290:312].mean(axis=-1)  # from outside to inside
        assert across.max() > 200
        assert across.min() < 60
        assert (picture[300, 330:470] == skin).all()  # thin: nothing in the middle


def test_the_heat_map_is_never_stretched_to_the_image():
    image, mask, confidence = flat()
    confidence[:, :400] = 0.9
    confidence[:, 400:] = 0.95
    narrow = overlay(image, mask, confidence, style="heatmap", scale=SCALE)
    confidence[:300, 400:] = 0.5
    wide = overlay(image, mask, confidence, style="heatmap", scale=SCALE)
    np.testing.assert_array_equal(narrow[:600, :400], wide[:600, :400])
    np.testing.assert_array_equal(narrow[300:600], wide[300:600])


def test_colours_are_those_of_cividis_from_a_guess_to_certainty():
    matplotlib = pytest.importorskip("matplotlib")
    values = np.linspace(1 / 3, 1, 256, dtype=np.float32)
    colours = Scale(STEPS, 4, 10, classes=3).colours(values[None])[0]
    expected = matplotlib.colormaps["cividis"](np.linspace(1, 0, 256))[:, :3] * 255
    assert np.abs(colours - expected).max() < 6
    brightness = colours @ [0.299, 0.587, 0.114]
    assert (np.diff(brightness) <= 1).all()  # readable without colour: brighter means less sure


def test_side_by_side_shows_the_image_and_the_confidence_alone():
    image, mask, confidence = flat()
    picture = overlay(image, mask, confidence, style="side-by-side", scale=SCALE)
    assert (picture[:600, :800] == GREY).all()
    certain = SCALE.colours(np.ones((1, 1), np.float32))[0, 0]
    assert (picture[:600, -800:] == certain).all()
    assert picture.shape[1] > 1600


def test_words_of_the_legend():
    assert SCALE.words() == ("wrong more than 1 time in 4", "wrong more than 1 time in 10")
    assert "on validation images" in SCALE.source()
    supposed = replace(SCALE, measured=False)
    assert supposed.words() == ("confidence below 70%: please check", "confidence 70% to 85%")
    assert "has not been measured" in supposed.source()


def test_another_error_rate_is_shaded_with_the_step_before_as_stripes():
    finer = SCALE.shading(20)
    assert (finer.striped_times, finer.shaded_times) == (10, 20)
    assert (finer.striped, finer.shaded) == (0.85, 0.95)
    coarsest = SCALE.shading(2)
    assert (coarsest.striped_times, coarsest.shaded_times) == (2, 2)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((2848, 4288), (1063, 1600)),  # 2848 * 1600 / 4288 = 1062.7
        ((800, 600), (800, 600)),
        ((256, 200), (512, 400)),
        ((1, 1), (512, 512)),
        ((1, 2000), (1, 1600)),
    ],
)
def test_display_sizes(size, shown):
    assert View().size(*size) == shown


@pytest.mark.parametrize(
    ("spacing", "size", "shown"),
    [
        ((5.0, 2.0, 1.0), (100, 120), (600, 360)),  # pixels twice as high: 200 x 120, times 3
        ((1.0, 3.0), (400, 300), (400, 900)),  # pixels three times as wide
        ((2.0, 1.0), (2000, 500), (1600, 200)),  # 4000 x 500, at most 1600
        (None, (100, 120), (500, 600)),
    ],
)
def test_pixels_have_the_shape_that_the_spacing_says(spacing, size, shown):
    image = Image(np.zeros((1, *size), np.uint8), Path("a"), spacing=spacing)
    assert View.of(image).size(*size) == shown


@pytest.mark.parametrize("style", get_args(Style))
def test_marks_are_inside_of_the_four_edges(style):
    image, mask, confidence = flat()
    orientation = Orientation(directions="SPL")
    view = View.of(Image(image, Path("a"), orientation=orientation))
    assert view.marks == ("R", "L", "A", "P")
    plain = overlay(image, mask, confidence, style=style, scale=SCALE)
    marked = overlay(image, mask, confidence, style=style, scale=SCALE, view=view)
    changed = (plain != marked).any(axis=-1)[:600, :800]
    rows, columns = np.nonzero(changed)
    middle = (abs(rows - 300) < 30) | (abs(columns - 400) < 30)
    edge = (rows < 60) | (rows > 540) | (columns < 60) | (columns > 740)
    assert (middle & edge).all()
    for part in (changed[:60], changed[-60:], changed[:, :60], changed[:, -60:]):
        assert part.any()


@pytest.mark.parametrize("style", get_args(Style))
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 1), (4, 5, 9), (3, 1, 3000), (1, 40, 2)])
def test_odd_shapes_are_drawn(shape, style):
    size = shape[1:]
    picture = overlay(
        np.zeros(shape, np.uint8),
        np.ones(size, np.uint8),
        np.full(size, 0.6),
        style=style,
        scale=SCALE,
    )
    assert picture.shape[1] >= 640
    assert picture.dtype == np.uint8


def test_images_shrink_by_averaging_and_grow_by_repetition():
    image = np.array([[[0, 100, 20, 60], [100, 200, 20, 60]]], np.uint8)  # (1, 2, 4)
    assert shown_image(image, (1, 2)).tolist() == [[[100] * 3, [40] * 3]]
    assert sampled(image[0], (4, 4))[:, 1].tolist() == [100, 100, 200, 200]


def test_shapes_must_agree():
    image, mask, confidence = flat()
    with pytest.raises(ValueError, match="shapes differ"):
        overlay(image, mask[:-1], confidence, style="contour", scale=SCALE)
