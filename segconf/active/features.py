"""How images look to the encoder: one vector per image, for telling near from far."""

from collections.abc import Sequence

import torch
from torch import Tensor

from segconf.active.pool import BATCH, Pool
from segconf.data.cache import Progress
from segconf.inference.batches import BatchRunner
from segconf.inference.model import Model


def deepest_features(
    model: Model, pool: Pool, numbers: Sequence[int], *, on_progress: Progress | None = None
) -> Tensor:
    """Deepest encoder features averaged over the pixels, (N, F), of the cases with these numbers.

    An average, so that neither the size of an image nor the place of the lesion counts.
    """
    encoder = model.checkpoint.model.get_submodule("encoder")

    def encode(images: Tensor) -> Tensor:
        with torch.inference_mode():
            deepest: Tensor = encoder(images.to(model.device))[-1]  # (B, F, h', w')
            return deepest.float().mean(dim=(2, 3))

    run = BatchRunner(encode, BATCH)
    features: list[Tensor] = []
    for pixels in pool.batches(numbers):
        features.append(run(model.normalize(pixels)))
        if on_progress is not None:
            on_progress("images compared", min(BATCH * len(features), len(numbers)), len(numbers))
    return torch.cat(features)
