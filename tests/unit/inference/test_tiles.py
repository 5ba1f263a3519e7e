"""Tiles in bands are the sliding window over the whole image."""

import numpy as np
import pytest
import torch
from monai.inferers.utils import sliding_window_inference

from segconf.inference import resampling as tiles
from segconf.inference.resampling import slabs, tiled_bands

TILE = (32, 48)


def as_input(pixels):
    """(B, H, W, C) to (B, C, H, W)."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 255


def network(images):
    """Depends on the place in the window, so that blending matters."""
    ramp = torch.linspace(-1, 1, images.shape[-2])[:, None] * torch.linspace(0, 2, images.shape[-1])
    return torch.stack([images.mean(dim=1) * ramp, images.amax(dim=1) + ramp], dim=1)


@pytest.mark.parametrize("size", [(300, 130), (97, 48), (32, 48), (33, 49), (20, 30), (257, 60)])
def test_bands_equal_one_pass_over_the_whole_image(monkeypatch, size):
    monkeypatch.setattr(tiles, "_SLAB_PIXELS", 1)  # the smallest slabs: two window rows each
    pixels = np.random.default_rng(0).integers(0, 256, (3, *size), np.uint8)

    bands = list(
        tiled_bands(pixels, normalize=as_input, predictor=network, tile=TILE, batch_size=3)
    )

    whole = sliding_window_inference(
        as_input(pixels[None].transpose(0, 2, 3, 1)),
        roi_size=TILE,
        sw_batch_size=4,
        predictor=network,
        overlap=tiles.OVERLAP,
        mode="gaussian",
    )[0]
    found = np.concatenate([band.logits for band in bands], axis=1)
    np.testing.assert_allclose(found, whole.numpy(), atol=1e-5)
    if size[0] > 200:
        assert len(bands) > 2


@pytest.mark.parametrize("tile", [32, 33, 96, 192])
def test_every_row_is_kept_once_and_no_window_is_missing(monkeypatch, tile):
    monkeypatch.setattr(tiles, "_SLAB_PIXELS", 1)
    stride = int(tile * 0.75)
    for height in [*range(1, 6 * tile, 7), 2000]:
        starts = [0]
        while starts[-1] + tile < height:
            starts.append(min(starts[-1] + stride, height - tile))
        kept = []
        for first, last, top, bottom in slabs(height, 10, tile):
            kept += range(top, bottom)
            touching = [s for s in starts if s < bottom and s + tile > top]
            assert all(first <= s and min(s + tile, height) <= last for s in touching)
            assert (last - first - tile) % stride == 0 or last == height
        assert kept == list(range(height))
