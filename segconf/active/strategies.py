"""Strategies to rank images for annotation: scores, and spread over the images."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from segconf.active.queue import BATCH, Pool
from segconf.confidence import FloatArray, negative_entropy
from segconf.config.ranges import Task
from segconf.data.cache import Progress
from segconf.errors import ConfigError, TrainingError
from segconf.inference.batch_runner import BatchRunner
from segconf.inference.torch_model import TorchModel
from segconf.results.maps import Maps
from segconf.results.rows import CaseRow
from segconf.results.summary import summarize
from segconf.training.history_maps import history_maps

Strategy = Literal[
    "confidence",
    "boundary-confidence",
    "consistency",
    "entropy",
    "expected-dice",
    "coreset",
    "random",
]


_VOLUME_AXES = 4
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
FOR_MASKS: tuple[Strategy, ...] = ("boundary-confidence", "expected-dice")


QUANTITIES: dict[Strategy, str] = {
    "confidence": "mean confidence",
    "boundary-confidence": "border confidence",
    "consistency": "mean consistency",
    "entropy": "mean entropy",
    "expected-dice": "expected Dice",
    "coreset": "distance",
    "random": "random number",
}
"""What the score of a strategy is."""


def asks_for_highest(strategy: Strategy) -> bool:
    """Whether a high score, not a low one, calls for a label."""
    return strategy in {"entropy", "coreset"}


def check_strategy(strategy: Strategy, task: Task) -> None:
    """Refuse a strategy that looks at masks where labels are predicted.

    Raises:
        ConfigError: it does.
    """
    if task == "classification" and strategy in FOR_MASKS:
        others = ", ".join(name for name in STRATEGIES if name not in FOR_MASKS)
        raise ConfigError(
            f"strategy = {strategy}: looks at masks, but here labels are predicted. Choose one of "
            f"{others}."
        )


def network_scores(
    strategy: Strategy, model: TorchModel, pool: Pool, *, on_progress: Progress | None = None
) -> list[float]:
    """Scores of all units of a pool by a pass of the network: the mean of their images.

    A volume has the score of all its slices together, as `predict` would see it.
    """
    by_unit = [pool.images(numbers) for numbers in pool.units()]
    order = [number for images in by_unit for image in images for number in image]
    cases = (one for pixels in pool.batches(order) for one in model.grid_logits(pixels))
    scores: list[float] = []
    done = 0
    for images in by_unit:
        own = [image_score(strategy, np.stack(list(islice(cases, len(image))))) for image in images]
        scores.append(math.fsum(own) / len(own))
        done += sum(len(image) for image in images)
        if on_progress is not None:
            on_progress("images scored", done, len(order))
    return scores


def unit_means(pool: Pool, values: Sequence[float]) -> list[float]:
    """Means over the cases of each unit of a pool, from one value per case."""
    return [math.fsum(values[n] for n in numbers) / len(numbers) for numbers in pool.units()]


def image_score(strategy: Strategy, logits: FloatArray) -> float:
    """Score of one image from its logits (K, h, w) or (D, K, h, w), calibrated.

    An image in which nothing is found has no border: its score is that of all its pixels.
    """
    slices = logits if logits.ndim == _VOLUME_AXES else logits[None]  # (D, K, h, w)
    if strategy == "entropy":
        # + 0.0 because a certain image should not have the entropy -0.
        return float(-negative_entropy(torch.from_numpy(slices).double()).mean()) + 0.0
    row = summarize(CaseRow("", ""), Maps.of_grid(slices), shaded=0)
    match strategy:
        case "confidence":
            return row.mean_confidence
        case "boundary-confidence":
            border = row.border_confidence
            return row.mean_confidence if math.isnan(border) else border
        case "expected-dice":
            # Without any foreground there is no Dice to expect, only a confidence.
            return row.expected_dice if row.foreground_fraction else row.mean_confidence
        case _:
            raise ValueError(f"{strategy} does not look at the prediction")


def consistency_scores(
    run: Path, ids: Sequence[str], *, data: Path | None, on_progress: Progress | None = None
) -> list[float]:
    """Mean consistency of images of a run, from the history of its training.

    Raises:
        ConfigError: the run keeps no history of these images.
    """
    way_out = "Choose another strategy, or train with the method consistency."
    try:
        total, maps = history_maps(run, data=data, on_prepare=on_progress)
    except TrainingError as error:
        raise ConfigError(f"strategy = consistency: {error} {way_out}") from error
    wanted = set(ids)
    found: dict[str, float] = {}
    for number, image in enumerate(maps, start=1):
        if image.id in wanted:
            found[image.id] = float(image.consistency.mean(dtype=np.float64))
        if on_progress is not None:
            on_progress("history", number, total)
    missing = [id_ for id_ in ids if id_ not in found]
    if missing:
        raise ConfigError(
            f"strategy = consistency: the history of {run} does not hold its unlabeled images, "
            f"such as {missing[0]}. {way_out}"
        )
    return [found[id_] for id_ in ids]


def random_scores(ids: Sequence[str], *, seed: int) -> list[float]:
    """Numbers in [0, 1) that depend on the seed and the id alone."""
    digests = (hashlib.sha256(f"query/{seed}/{id_}".encode()).digest() for id_ in ids)
    return [int.from_bytes(digest[:6]) / 2**48 for digest in digests]


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


def unit_features(features: Tensor, sizes: Sequence[int]) -> Tensor:
    """Means (U, F) over the cases of each unit, from the features (N, F) of all their cases."""
    parts = torch.split(features, list(sizes))
    return torch.stack([part.mean(dim=0) for part in parts])


def deepest_features(
    model: TorchModel, pool: Pool, numbers: Sequence[int], *, on_progress: Progress | None = None
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
