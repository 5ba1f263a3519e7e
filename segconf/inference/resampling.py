"""Logits on the grid of the input: bilinear resizing, or a sliding window, in bands of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segconf.confidence import FloatArray
from segconf.images.types import ByteArray, Size
from segconf.results.maps import Band

if TYPE_CHECKING:
    from torch import Tensor

_BAND_PIXELS = 1 << 15


def resized_bands(logits: FloatArray, size: Size) -> Iterator[Band]:
    """Bilinear interpolation of logits (K, h, w) between pixel centres, a band at a time."""
    height, width = size
    # Networks answer with the classes innermost, and numpy would keep that order to the end.
    logits = np.ascontiguousarray(logits)
    low, high, fraction = _neighbours(logits.shape[2], width)
    wide = logits[:, :, low] * (1 - fraction) + logits[:, :, high] * fraction  # (K, h, W)
    low, high, fraction = _neighbours(logits.shape[1], height)
    rows = max(1, _BAND_PIXELS // width)
    for start in range(0, height, rows):
        band = slice(start, start + rows)
        weight = fraction[band, None]  # (b, 1)
        values = wide[:, low[band]]  # (K, b, W)
        values *= 1 - weight
        other = wide[:, high[band]]
        other *= weight
        values += other
        yield Band(start, values)


def _neighbours(old: int, new: int) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """The two old positions around every new pixel centre, and the weight of the second."""
    centres = ((np.arange(new) + 0.5) * (old / new) - 0.5).clip(0, old - 1)
    low = centres.astype(np.intp)
    fraction = (centres - low).astype(np.float32)
    return low, np.minimum(low + 1, old - 1), fraction


OVERLAP = 0.25


_SLAB_PIXELS = 16_000_000


Predictor: TypeAlias = "Callable[[Tensor], Tensor]"


def tiled_bands(
    pixels: ByteArray,
    *,
    normalize: Callable[[ByteArray], Tensor],
    predictor: Predictor,
    tile: Size,
    batch_size: int,
) -> Iterator[Band]:
    """Logits of an image (C, H, W) at its own resolution, windows blended with Gaussian weights.

    Args:
        pixels: the image.
        normalize: from pixels (B, H, W, C) to the network's input (B, C, H, W).
        predictor: from that input, of the size of a tile, to logits (B, K, h, w).
        tile: height and width of a window.
        batch_size: windows that the network sees at once.
    """
    height, width = pixels.shape[1:]
    for first, last, top, bottom in slabs(height, width, tile[0]):
        slab = normalize(pixels[None, :, first:last].transpose(0, 2, 3, 1))  # (1, C, rows, W)
        logits = _slide(slab, predictor, tile, batch_size)
        kept = logits[0, :, top - first : bottom - first]  # (K, b, W)
        yield Band(top, np.ascontiguousarray(kept.cpu().numpy(), np.float32))


def _slide(slab: Tensor, predictor: Predictor, tile: Size, batch_size: int) -> Tensor:
    import torch
    from monai.inferers.utils import sliding_window_inference  # takes seconds to import

    with torch.inference_mode():
        logits: Any = sliding_window_inference(
            slab,
            roi_size=tile,
            sw_batch_size=batch_size,
            predictor=predictor,
            overlap=OVERLAP,
            mode="gaussian",
        )
    return logits  # type: ignore[no-any-return]  # (1, K, rows, W)


def slabs(height: int, width: int, tile: int) -> Iterator[tuple[int, int, int, int]]:
    """Rows to compute (first, last) and rows to keep of them (top, bottom), from top to bottom."""
    stride = max(1, int(tile * (1 - OVERLAP)))
    windows = max(1, math.ceil((height - tile) / stride) + 1)
    per_slab = max(2, _SLAB_PIXELS // (width * stride))
    start = 0
    while start < windows:
        stop = start + per_slab
        # The last window is pushed back to the edge, over windows of the slab before: never alone.
        if stop >= windows - 1:
            stop = windows
        top, first = start * stride, max(0, start - 1) * stride
        if stop == windows:
            yield first, height, top, height
        else:
            yield first, (stop - 1) * stride + tile, top, stop * stride
        start = stop
