"""Run the network on as many images at a time as fit into memory."""

import logging
import time
from collections.abc import Callable

import torch
from torch import Tensor

from segconf.errors import DataError

logger = logging.getLogger(__name__)


_MEMORY_WORDS = ("out of memory", "can't allocate memory", "not enough memory")


class BatchRunner:
    """Remembers the batch size that memory allows: halved whenever a batch did not fit."""

    def __init__(
        self, function: Callable[[Tensor], tuple[Tensor, Tensor | None]], batch_size: int
    ) -> None:
        """Run a function of images (B, C, h, w) on at most `batch_size` of them at a time.

        It returns logits and features, or anything else with one row per image; the second may be
        None.
        """
        self._function = function
        self.batch_size = batch_size
        self._seconds = 0.0
        self._images = 0

    @property
    def seconds_per_image(self) -> float | None:
        """Mean time of the network for an image of a full batch; None before the first."""
        return self._seconds / self._images if self._images else None

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Both results for any number of images, on the processor."""
        parts: list[tuple[Tensor, Tensor | None]] = []
        start = 0
        while start < len(images):
            chunk = images[start : start + self.batch_size]
            try:
                first, second = self._timed(self._filled(chunk))
            except (RuntimeError, MemoryError) as error:
                if not _is_memory_error(error):
                    raise
                self._halve(error)
                continue
            count = len(chunk)
            parts.append((first[:count], None if second is None else second[:count]))
            start += count
        seconds = [second for _, second in parts if second is not None]
        return torch.cat([first for first, _ in parts]), torch.cat(seconds) if seconds else None

    def _timed(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Results on the processor; copying them there waits for the device to be done."""
        started = time.perf_counter()
        first, second = self._function(images)
        first, second = first.cpu(), None if second is None else second.cpu()
        self._seconds += time.perf_counter() - started
        self._images += len(images)
        return first, second

    def _filled(self, chunk: Tensor) -> Tensor:
        """The chunk, filled up by repetition.

        Libraries choose their algorithms by the size of the batch. With one size, what is
        predicted for an image does not depend on how many others were left for its batch.
        """
        rows = torch.arange(self.batch_size) % len(chunk)
        return chunk if len(chunk) == self.batch_size else chunk[rows]

    def _halve(self, error: Exception) -> None:
        if self.batch_size == 1:
            raise DataError(
                "the network does not fit into memory even for a single image. Close other "
                "programs, or use the device cpu."
            ) from error
        self.batch_size //= 2
        logger.warning("out of memory: going on with batches of %d", self.batch_size)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _is_memory_error(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return any(words in str(error).lower() for words in _MEMORY_WORDS)
