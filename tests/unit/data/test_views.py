"""Views of small images: cropped and flipped all at once, as a slow loop would; labels stay."""

import numpy as np
import pytest

from segconf.config.schema import AugmentationConfig
from segconf.data.transforms import crop_and_flip
from segconf.data.views import Views

IMAGES = np.random.default_rng(0).integers(1, 256, (40, 6, 7, 3), np.uint8)


def places(view, image, padding):
    """All (top, left, upside down, left to right) of which the view can be."""
    height, width, channels = image.shape
    frame = np.zeros((height + 2 * padding, width + 2 * padding, channels), np.uint8)
    for row in range(height):
        for column in range(width):
            frame[row + padding, column + padding] = image[row, column]
    return [
        (top, left, flip_rows, flip_columns)
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
        for flip_rows in (False, True)
        for flip_columns in (False, True)
        if all(
            (
                view[row, column]
                == frame[
                    top + (height - 1 - row if flip_rows else row),
                    left + (width - 1 - column if flip_columns else column),
                ]
            ).all()
            for row in range(height)
            for column in range(width)
        )
    ]


def test_every_view_is_a_padded_crop_and_all_places_occur():
    settings = AugmentationConfig(padding=1, horizontal_flip=0.5, vertical_flip=0.5)
    views = crop_and_flip(IMAGES, settings, np.random.default_rng(3))
    found = [places(view, image, 1) for view, image in zip(views, IMAGES, strict=True)]
    assert all(len(one) == 1 for one in found)
    tops, lefts, rows, columns = zip(*(one[0] for one in found), strict=True)
    assert set(tops) == set(lefts) == {0, 1, 2}
    assert set(rows) == set(columns) == {False, True}


def test_without_padding_and_flips_nothing_changes():
    settings = AugmentationConfig(padding=0, horizontal_flip=0.0, vertical_flip=0.0)
    views = crop_and_flip(IMAGES, settings, np.random.default_rng(3))
    np.testing.assert_array_equal(views, IMAGES)


def views_of(seed=0, **settings):
    plain = {"scale": (1.0, 1.0), "padding": 2, "vertical_flip": 0.0}
    return Views((6, 7), AugmentationConfig(**plain | settings), mask_size=(1, 1), seed=seed)


@pytest.mark.parametrize("settings", [{}, {"scale": (0.7, 1.5)}, {"color_jitter": 0.3}])
def test_views_depend_on_seed_epoch_and_step_alone_and_keep_the_label(settings):
    labels = np.arange(40, dtype=np.uint8).reshape(40, 1, 1)
    one, own = views_of(**settings).augmented(IMAGES, labels, epoch=1, step=2)
    two, _ = views_of(**settings).augmented(IMAGES, labels, epoch=1, step=2)
    np.testing.assert_array_equal(own, labels)
    np.testing.assert_array_equal(one, two)
    assert one.shape == IMAGES.shape
    for seed, epoch, step in ((1, 1, 2), (0, 2, 2), (0, 1, 3)):
        other, _ = views_of(seed, **settings).augmented(IMAGES, labels, epoch=epoch, step=step)
        assert (other != one).any()


def test_rows_of_a_table_stay_as_they_are():
    rows = np.random.default_rng(0).normal(size=(5, 1, 1, 4)).astype(np.float32)
    views = Views((1, 1), AugmentationConfig(padding=4), mask_size=(1, 1), seed=0)
    seen, _ = views.augmented(rows, np.zeros((5, 1, 1), np.uint8), epoch=0, step=0)
    np.testing.assert_array_equal(seen, rows)
    assert views.recorded(rows, np.arange(5), epoch=0, step=0)[1] is None
