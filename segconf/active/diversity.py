"""Spread over the images: every next choice is the one farthest from all before it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from segconf.active.pool import BATCH, Pool
from segconf.data.cache import Progress
from segconf.inference.batch_runner import BatchRunner
from segconf.inference.model import Model


@dataclass(frozen=True, slots=True)
class Centers:
    """Positions of the chosen points, and how far each was from the nearest one before it."""

    positions: list[int]
    distances: list[float]


def k_center(points: Tensor, count: int, *, centers: Tensor | None = None) -> Centers:
    """Greedy k-center: the farthest point, again and again; the first of equals.

    Args:
        points: (N, F) to choose from.
        count: how many.
        centers: (M, F) that are covered already. Without any, the first point is chosen first, and
            its distance is infinite.
    """
    if not 0 <= count <= len(points):
        raise ValueError(f"cannot choose {count} of {len(points)} points")
    points = points.double()
    nearest = torch.full((len(points),), torch.inf, dtype=torch.float64)  # (N,)
    if centers is not None and len(centers):
        nearest = _distances(points, centers.double()).amin(dim=1)
    positions: list[int] = []
    distances: list[float] = []
    for _ in range(count):
        farthest = int(nearest.argmax())
        positions.append(farthest)
        distances.append(float(nearest[farthest]))
        nearest = nearest.minimum(_distances(points, points[farthest, None])[:, 0])
        nearest[farthest] = -1  # below any distance: not even a copy of it is chosen twice
    return Centers(positions, distances)


def _distances(points: Tensor, centers: Tensor) -> Tensor:
    # Not by a matrix product, whose rounding makes copies of a point look apart.
    return torch.cdist(points, centers, compute_mode="donot_use_mm_for_euclid_dist")


def deepest_features(
    model: Model, pool: Pool, numbers: Sequence[int], *, on_progress: Progress | None = None
) -> Tensor:
    """Deepest encoder features averaged over the pixels, (N, F), of the cases with these numbers.

    An average, so that neither the size of an image nor the place of the lesion counts.
    """
    encoder = model.checkpoint.model.get_submodule("encoder")

    def deepest(images: Tensor) -> tuple[Tensor, None]:
        with torch.inference_mode():
            maps: Tensor = encoder(images.to(model.device))[-1]  # (B, F, h', w')
            return maps.float().mean(dim=(2, 3)), None

    batches = BatchRunner(deepest, BATCH)
    features: list[Tensor] = []
    for pixels in pool.batches(numbers):
        features.append(batches(model.normalize(pixels))[0])
        if on_progress is not None:
            on_progress("images compared", min(BATCH * len(features), len(numbers)), len(numbers))
    return torch.cat(features)
