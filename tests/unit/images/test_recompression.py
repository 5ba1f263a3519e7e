"""Images as another archive would have kept them."""

import io

import numpy as np
import PIL.Image

from segconf.images.recompression import Recompression

BOX = PIL.Image.Resampling.BOX


def test_pixels_are_those_of_a_jpeg_file_of_that_size_and_quality():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 40, 60)).astype(np.uint8)
    content = io.BytesIO()
    picture = PIL.Image.fromarray(pixels.transpose(1, 2, 0)).resize((30, 20), BOX)
    picture.save(content, "jpeg", quality=70)
    expected = np.array(PIL.Image.open(content)).transpose(2, 0, 1)
    found = Recompression((20, 30), BOX, 70).apply(pixels)
    np.testing.assert_array_equal(found, expected)


def test_grey_and_other_channels_are_kept_apart():
    pixels = np.zeros((2, 16, 16), np.uint8)
    pixels[1] = 200
    found = Recompression((8, 8), BOX, 95).apply(pixels)
    assert found.shape == (2, 8, 8)
    assert np.abs(found[0].astype(int)).max() <= 1
    assert np.abs(found[1].astype(int) - 200).max() <= 1


def test_draws_stay_within_their_limits_and_follow_the_seed():
    def draws(seed):
        generator = np.random.default_rng(seed)
        return [Recompression.draw((600, 900), (150, 300), generator) for _ in range(300)]

    found = draws(1)
    assert draws(1) == found != draws(2)
    # Height may fall to a quarter, width to a third: both shrink to a third at most.
    factors = np.array([one.size[0] / 600 for one in found])
    assert factors.min() >= 1 / 3 - 1e-3
    assert factors.max() <= 1
    assert np.median(factors) < 0.63  # log-uniform: the median is sqrt(1/3) = 0.577
    assert all(abs(one.size[1] - 1.5 * one.size[0]) <= 1 for one in found)
    assert {one.quality for one in found} >= {50, 95}
    assert min(one.quality for one in found) == 50
    assert max(one.quality for one in found) == 95
    assert len({one.resampling for one in found}) == 4


def test_images_that_are_coarse_already_keep_their_size():
    generator = np.random.default_rng(0)
    assert Recompression.draw((40, 50), (128, 160), generator).size == (40, 50)
