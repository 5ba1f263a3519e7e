"""Logits on the grid of the input, and the mask and confidence made of them."""

import io

import numpy as np
import PIL.Image
import pytest
import torch

from segconf.images.encoding import png_bytes, write_png
from segconf.inference import resampling as grid
from segconf.inference.resampling import resized_bands
from segconf.results.maps import Band, Maps


def joined(bands):
    return np.concatenate([band.logits for band in bands], axis=1)


@pytest.mark.parametrize("size", [(64, 64), (97, 131), (20, 31), (1, 1), (1, 200), (333, 2)])
def test_bands_are_the_bilinear_interpolation_of_torch(monkeypatch, size):
    monkeypatch.setattr(grid, "_BAND_PIXELS", 700)  # several bands
    logits = torch.randn(3, 32, 48, generator=torch.Generator().manual_seed(1))

    bands = list(resized_bands(logits.numpy(), size))

    expected = torch.nn.functional.interpolate(logits[None].double(), size, mode="bilinear")[0]
    np.testing.assert_allclose(joined(bands), expected.numpy(), atol=2e-6)
    heights = [band.logits.shape[1] for band in bands]
    assert [band.start for band in bands] == [0, *np.cumsum(heights)[:-1]]


@pytest.mark.parametrize("classes", [2, 3])
def test_maps_are_argmax_and_softmax(classes):
    logits = torch.randn(classes, 40, 30, generator=torch.Generator().manual_seed(2)) * 4
    maps = Maps.empty((1, 40, 30), classes=classes, probabilities=True)

    maps.fill(0, [Band(0, logits[:, :25].numpy()), Band(25, logits[:, 25:].numpy())])

    probabilities = logits.double().softmax(dim=0)
    confidence, mask = probabilities.max(dim=0)
    np.testing.assert_array_equal(maps.mask[0], mask)
    assert np.abs(maps.levels[0] - 65535 * confidence.numpy()).max() <= 0.51
    foreground = 1 - probabilities[0]
    assert maps.foreground == pytest.approx(foreground.sum().item(), rel=1e-5)
    assert maps.overlap == pytest.approx(foreground[mask > 0].sum().item(), rel=1e-5)
    np.testing.assert_allclose(maps.probabilities[:, 0], probabilities.numpy(), atol=1e-6)


def test_a_tie_is_background_and_a_certain_pixel_is_full_scale():
    logits = np.array([[[0.0, 0.0]], [[0.0, 200.0]]], np.float32)  # (2, 1, 2)
    maps = Maps.empty((1, 1, 2), classes=2, probabilities=False)

    maps.fill(0, [Band(0, logits)])

    assert maps.mask.tolist() == [[[0, 1]]]
    assert maps.levels.tolist() == [[[32768, 65535]]]  # 32767.5 to the even neighbour
    assert maps.probabilities is None


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (7, 1), (300, 517)])
@pytest.mark.parametrize("kind", ["uint8", "uint16", "colour"])
def test_png_holds_the_pixels(tmp_path, shape, kind):
    rng = np.random.default_rng(3)
    if kind == "colour":
        pixels = rng.integers(0, 256, (*shape, 3), np.uint8)
    else:
        pixels = rng.integers(0, np.iinfo(kind).max, shape, np.dtype(kind))

    write_png(tmp_path / "a.png", pixels)

    with PIL.Image.open(tmp_path / "a.png") as picture:
        picture.verify()  # checksums
    with PIL.Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), pixels)
    assert png_bytes(pixels) == (tmp_path / "a.png").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_png_of_several_blocks_and_of_a_strided_view(tmp_path):
    pixels = np.arange(3000 * 800, dtype=np.uint16).reshape(3000, 800)[::-1, ::2]
    with PIL.Image.open(io.BytesIO(png_bytes(pixels))) as picture:
        np.testing.assert_array_equal(np.asarray(picture), pixels)
    with pytest.raises(ValueError, match="float32"):
        write_png(tmp_path / "a.png", pixels.astype(np.float32))
