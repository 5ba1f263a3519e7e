"""Native resolution by MONAI's sliding window, in bands, so that memory does not follow the height.

The windows are those of one pass over the whole image. A band keeps the rows that no later window
touches; its slab begins one window row earlier, whose windows are computed a second time.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from segconf.images.types import ByteArray, Size
from segconf.inference.grid import Band

OVERLAP = 0.25
_SLAB_PIXELS = 16_000_000

Predictor = Callable[[Tensor], Tensor]


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
