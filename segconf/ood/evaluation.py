"""Out-of-distribution detection measured: a split of the run against images of another kind."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segconf.confidence import probabilities_of
from segconf.data.cache import Progress
from segconf.data.cases import Case, raise_problems
from segconf.data.datasets.dataset import find_cases, is_named
from segconf.devices import resolve_device
from segconf.errors import ConfigError, DataError
from segconf.evaluation.evaluate import EvaluationOptions
from segconf.files import make_folder, write_text
from segconf.inference.model import NetworkInput
from segconf.inference.sources import find_images
from segconf.inference.torch_model import TorchModel
from segconf.metrics.ranking_histogram import Groups
from segconf.metrics.selective import auroc, false_positive_rate, ranking_totals
from segconf.plots.image_scores import ood_plot
from segconf.runs.run_cases import masked_cases
from segconf.runs.run_folder import RunFolder


def detection_metrics(own: NDArray[Any], others: NDArray[Any]) -> dict[str, float]:
    """Separation of two sets of images by a score that is high for out-of-distribution images.

    - ``auroc``: probability that an out-of-distribution image scores higher than an own one; ties
      count half.
    - ``detection_error``: smallest value over all thresholds of
      ``(own images refused + others accepted) / 2``, as fractions: both kinds count alike.
    - ``fpr95``: fraction of others accepted at the threshold that accepts nearest to 95% of the own
      images, the stricter of two equally near.

    Args:
        own: (N,) scores of images like those of the training.
        others: (M,) scores of other images.
    """
    if len(own) == 0 or len(others) == 0:
        raise ValueError(f"cannot compare {len(own)} own images with {len(others)} others")
    values, group = np.unique(np.concatenate([own, others]), return_inverse=True)
    counts = np.zeros((2, len(values)), np.int64)
    np.add.at(counts[0], group[: len(own)], 1)
    np.add.at(counts[1], group[len(own) :], 1)
    accepted = np.cumsum(counts, axis=1) / [[len(own)], [len(others)]]  # (2, G) up to a value
    errors = (1 - accepted[0] + accepted[1]) / 2
    groups = Groups(values.astype(np.float32), counts[0], counts[1])
    return {
        "auroc": auroc(np.concatenate([own, others]), np.arange(len(group)) >= len(own)),
        "detection_error": min(0.5, float(errors.min())),
        "fpr95": float(false_positive_rate(ranking_totals([groups], len(own), len(others)))),
    }


Floats = NDArray[np.float64]


FEATURES, CONFIDENCE = "features", "confidence"


_DEFINITIONS = {
    "auroc": "probability that another image scores higher than an own one; ties count half",
    "detection_error": "smallest mean of the fractions of own images flagged and others accepted",
    "fpr95": "fraction of others accepted where nearest to 95% of the own images are",
    FEATURES: "Mahalanobis distance of log energies of encoder features from training images",
    CONFIDENCE: "1 - mean confidence of the pixels; of labels 1 - maximum softmax probability",
}


@dataclass(frozen=True, slots=True)
class OODReport:
    """Detection metrics by score; that of the features is missing where the run has none.

    Attributes:
        own: images of the split.
        others: images of the other folder.
        metrics: auroc, detection_error and fpr95 by score.
        flagged: fractions of own images and of others above the threshold of the run.
        false_alarm_rate: fraction of the validation images above it.
    """

    own: int
    others: int
    metrics: Mapping[str, Mapping[str, float]]
    flagged: tuple[float, float] | None
    false_alarm_rate: float | None


def evaluate_ood(
    run_path: Path,
    folder: Path,
    out: Path,
    options: EvaluationOptions,
    *,
    on_progress: Progress | None = None,
) -> OODReport:
    """Compare the images of a split with those of a folder; write `ood.json` and `ood.png`.

    Args:
        run_path: the run folder.
        folder: images of another kind, read as `predict` reads them; or the name of a data set,
            whose test images are taken.
        out: folder of the report.
        options: split, data and device.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    run = RunFolder(run_path)
    model = TorchModel(run_path, device=resolve_device(options.device))
    cases, _ = masked_cases(run, options.split, options.data)
    if run.config().has_table:
        raise ConfigError("ood: this run classifies rows of a table, not images.")
    # Both as `predict` reads them. The cache of a training decodes JPEGs at a reduced size, and a
    # score that sees fine structure would tell the two ways of reading apart.
    own = _scores_of(model, _files(cases), options.split, on_progress)
    others = _scores_of(model, other_files(folder), "out-of-distribution images", on_progress)
    metrics = {name: detection_metrics(own[name], others[name]) for name in own}
    known = model.detector
    flagged = None
    if known is not None and FEATURES in own:
        first, second = (float((s[FEATURES] > known.threshold).mean()) for s in (own, others))
        flagged = (first, second)
    report = OODReport(
        own=len(own[CONFIDENCE]),
        others=len(others[CONFIDENCE]),
        metrics=metrics,
        flagged=flagged,
        false_alarm_rate=None if known is None else known.false_alarm_rate,
    )
    content = {
        "split": options.split,
        "ood_folder": folder.name,
        "images": report.own,
        "others": report.others,
        "metrics": metrics,
        "threshold": None if known is None else known.threshold,
        "false_alarm_rate": report.false_alarm_rate,
        "flagged": None if flagged is None else {"own": flagged[0], "others": flagged[1]},
        "definitions": _DEFINITIONS,
    }
    make_folder(out)
    write_text(out / "ood.json", json.dumps(content, indent=1))
    pairs = {name: (own[name], others[name]) for name in own}
    ood_plot(pairs, out / "ood.png", threshold=None if known is None else known.threshold)
    return report


@dataclass(frozen=True, slots=True)
class ImageFile:
    """An image or, of a file that holds many of them, the records that are meant."""

    path: Path
    records: tuple[int, ...] = ()


def _files(cases: Sequence[Case]) -> list[ImageFile]:
    records: dict[Path, list[int]] = {}
    for case in cases:
        records.setdefault(case.image_path, [])
        if case.record is not None:
            records[case.image_path].append(case.record)
    return [ImageFile(path, tuple(own)) for path, own in records.items()]


def other_files(folder: Path) -> list[ImageFile]:
    """Images of a folder, or the test images of a data set that has this name.

    Raises:
        DataError: there are none.
    """
    if not folder.exists() and is_named(str(folder)):
        found = find_cases(str(folder))
        raise_problems(found.problems, found.root)
        if not found.test:
            raise DataError(f"{found.root}: no test images. Name a folder of images.")
        return _files(found.test)
    return [ImageFile(source.path) for source in find_images([folder]).items]


def _scores_of(
    model: TorchModel, files: Sequence[ImageFile], label: str, on_progress: Progress | None
) -> dict[str, Floats]:
    """Both scores (N,) of images; those of a volume are the means of its slices.

    So many files are read at once that they fill a batch of the network.
    """
    parts: list[dict[str, Floats]] = []
    for start in range(0, len(files), model.batch_size):
        chunk = files[start : start + model.batch_size]
        inputs = [_input(model, file) for file in chunk]
        scores = _scores(model, inputs)
        ends = np.cumsum([len(one.pixels) for one in inputs])[:-1]
        split = {name: np.split(values, ends) for name, values in scores.items()}
        for place, file in enumerate(chunk):
            own = {name: values[place] for name, values in split.items()}
            whole = {name: values.mean(keepdims=True) for name, values in own.items()}
            parts.append(own if file.records else whole)
        if on_progress is not None:
            on_progress(label, len(parts), len(files))
    return _joined(parts)


def _input(model: TorchModel, file: ImageFile) -> NetworkInput:
    """The slices, or the chosen records, of a file."""
    image = model.read(file.path)
    if file.records:
        image = replace(image, pixels=image.pixels[:, list(file.records)])
    return model.network_input(image)


def _scores(model: TorchModel, inputs: Sequence[NetworkInput]) -> dict[str, Floats]:
    """Both scores (D,) of all slices of some files; high = unlike."""
    described = [one.feature_pixels for one in inputs if one.feature_pixels is not None]
    output = model.grid_output(
        np.concatenate([one.pixels for one in inputs]),
        np.concatenate(described) if described else None,
    )
    means = [probabilities_of(one).max(axis=0).mean() for one in output.logits]
    scores = {CONFIDENCE: 1 - np.array(means, np.float64)}
    distances = output.ood_scores
    return scores if np.isnan(distances).any() else {FEATURES: distances, **scores}


def _joined(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
