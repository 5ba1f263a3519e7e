"""The ways to rank images for annotation, by name and in words."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch

from segconf.active.pool import Pool
from segconf.confidence import FloatArray, negative_entropy
from segconf.data.cache import Progress
from segconf.errors import ConfigError, TrainingError
from segconf.inference.model import Model
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


STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


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


def network_scores(
    strategy: Strategy, model: Model, pool: Pool, *, on_progress: Progress | None = None
) -> list[float]:
    """Scores of all cases of a pool by a pass of the network."""
    scores: list[float] = []
    for pixels in pool.batches(range(len(pool.cases))):
        scores += [image_score(strategy, logits) for logits in model.grid_logits(pixels)]
        if on_progress is not None:
            on_progress("images scored", len(scores), len(pool.cases))
    return scores


def image_score(strategy: Strategy, logits: FloatArray) -> float:
    """Score of one image from its logits (K, h, w), after the temperature.

    An image in which nothing is found has no border: its score is that of all its pixels.
    """
    if strategy == "entropy":
        # + 0.0 because a certain image should not have the entropy -0.
        return float(-negative_entropy(torch.from_numpy(logits[None]).double()).mean()) + 0.0
    row = summarize(CaseRow("", ""), Maps.of_grid(logits), threshold=0)
    match strategy:
        case "confidence":
            return row.mean_confidence
        case "boundary-confidence":
            border = row.border_confidence
            return row.mean_confidence if math.isnan(border) else border
        case "expected-dice":
            # Without any foreground there is no Dice to expect, only a confidence.
            dice = row.expected_dice
            return row.mean_confidence if math.isnan(dice) else dice
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
