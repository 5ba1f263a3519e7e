"""History maps of a run: consistency and correctness of each training pixel."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from segconf.config.schema import ExperimentConfig
from segconf.data.cache import PixelCache, Pixels, Progress
from segconf.data.preprocessing import Preprocessing
from segconf.errors import TrainingError
from segconf.history.predictions import PredictionHistory
from segconf.history.probabilities import ProbabilityHistory
from segconf.history.storage import committed_epochs
from segconf.methods.method import method_of
from segconf.runs.run_cases import training_cases
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder

Map = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HistoryMaps:
    """What the training said about one image, on the grid of the network."""

    id: str
    image: Pixels  # (H, W, C)
    consistency: Map  # (H, W) in [0, 1]; 1 before the second prediction
    correctness: Map | None  # (H, W) in [0, 1]; None for an unlabeled image
    epochs: int  # after which this was the state


def history_maps(
    folder: Path, *, data: Path | None = None, on_prepare: Progress | None = None
) -> tuple[int, Iterator[HistoryMaps]]:
    """Maps of all images in the history of a run.

    Args:
        folder: the run.
        data: where its data set lies now; where it lay during the training when not given.
        on_prepare: is told how many images are decoded, if they are no longer in the cache.

    Returns:
        The number of images, and their maps one after another.
    """
    run = RunFolder(folder)
    config, run_data = run.config(), run.data()
    if not method_of(config).uses_history:
        method = config.training.method
        raise TrainingError(f"{folder}: the method {method} keeps no history of predictions.")
    ranks = sorted(
        (path for path in run.history.glob("rank*") if path.name[4:].isdecimal()),
        key=lambda path: int(path.name[4:]),
    )
    folders = ranks or [run.history]
    known = [committed_epochs(part) for part in folders]
    if not all(known):
        raise TrainingError(f"{run.history}: no epoch was finished, so there is no history yet.")
    epochs = min(part[-1] for part in known)
    images = _training_images(config, run_data, data, on_prepare)
    kind = ProbabilityHistory if method_of(config).uses_past else PredictionHistory
    owned = [_own_ids(config, run_data, rank, len(folders)) for rank in range(len(folders))]

    def read() -> Iterator[HistoryMaps]:
        for part, ids in zip(folders, owned, strict=True):
            history = _restored(kind, part, epochs, ids, set(run_data.ids["labeled"]))
            for slot, id_ in enumerate(ids):
                yield _maps_of(history, slot, id_, images[id_], epochs)

    return sum(len(ids) for ids in owned), read()


def _restored(
    kind: type[PredictionHistory], folder: Path, epoch: int, ids: list[str], labeled: set[str]
) -> PredictionHistory:
    """The history of a process, which must be that of these images."""
    way_out = "Put the files of the run back, or train again."
    try:
        history = kind.restore(folder, epoch=epoch)
    except (OSError, ValueError) as error:
        raise TrainingError(str(error)) from error
    expected = [slot for slot, id_ in enumerate(ids) if id_ in labeled]
    if history.images != len(ids) or sorted(history.labeled) != expected:
        raise TrainingError(
            f"{folder}: holds {history.images} images, {len(history.labeled)} of them labeled; "
            f"split.json lists {len(ids)} and {len(expected)}. {way_out}"
        )
    return history


def _maps_of(
    history: PredictionHistory, slot: int, id_: str, image: Pixels, epochs: int
) -> HistoryMaps:
    cases = torch.tensor([slot])
    labeled = slot in history.labeled
    return HistoryMaps(
        id=id_,
        image=image,
        consistency=history.consistency(cases)[0].numpy(),
        correctness=history.correctness(cases)[0].numpy() if labeled else None,
        epochs=epochs,
    )


def _own_ids(config: ExperimentConfig, data: RunData, rank: int, world: int) -> list[str]:
    """Ids in the order of the slots of a process: it owns every world-th image of each role."""
    roles = ["labeled", *(["unlabeled"] if method_of(config).uses_unlabeled else [])]
    return sorted(id_ for role in roles for id_ in sorted(data.ids[role])[rank::world])


def _training_images(
    config: ExperimentConfig, run_data: RunData, data: Path | None, on_prepare: Progress | None
) -> dict[str, Pixels]:
    root, cases = training_cases(config, run_data, data)
    cache = PixelCache(root, Preprocessing.of(config), on_progress=on_prepare)
    pixels = cache.images(cases, label="training")
    return {case.id: image for case, image in zip(cases, pixels, strict=True)}
