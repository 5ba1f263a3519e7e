"""How well a run tells other kinds of images from its own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segconf.data.cache import Progress
from segconf.devices import resolve_device
from segconf.evaluation.finding import masked_cases
from segconf.evaluation.run import EvaluationOptions
from segconf.files import write_text
from segconf.images import Image
from segconf.inference.model import Model
from segconf.inference.probabilities import probabilities_of
from segconf.inference.sources import find_images
from segconf.metrics.detection import detection_metrics
from segconf.plots import stranger_plot
from segconf.runs import RunFolder

Floats = NDArray[np.float64]
FEATURES, CONFIDENCE = "features", "confidence"
_DEFINITIONS = {
    "auroc": "probability that a stranger scores higher than an own image; ties count half",
    "detection_error": "smallest mean of the share of own images refused and strangers accepted",
    "fpr95": "share of strangers accepted where nearest to 95% of the own images are",
    FEATURES: "Mahalanobis distance of means of encoder features from those of training images",
    CONFIDENCE: "1 - mean confidence of the pixels",
}


@dataclass(frozen=True, slots=True)
class StrangerReport:
    """Detection metrics by score; that of the features is missing where the run has none.

    Attributes:
        own: images of the split.
        strangers: images of the other folder.
        metrics: auroc, detection_error and fpr95 by score.
        flagged: shares of own images and of strangers above the threshold of the run.
        false_alarm_rate: share of the validation images above it.
    """

    own: int
    strangers: int
    metrics: Mapping[str, Mapping[str, float]]
    flagged: tuple[float, float] | None
    false_alarm_rate: float | None


def evaluate_strangers(
    run_path: Path,
    folder: Path,
    out: Path,
    options: EvaluationOptions,
    *,
    on_progress: Progress | None = None,
) -> StrangerReport:
    """Compare the images of a split with those of a folder; write `ood.json` and `ood.png`.

    Args:
        run_path: the run folder.
        folder: images of another kind, read as `predict` reads them.
        out: folder of the report.
        options: split, data and device.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    run = RunFolder(run_path)
    model = Model(run_path, device=resolve_device(options.device))
    cases, _ = masked_cases(run, options.split, options.data)
    others = [source.path for source in find_images([folder]).items]
    # Both as `predict` reads them. The cache of a training decodes JPEGs at a reduced size, and a
    # score that sees fine structure would tell the two ways of reading apart.
    own = _scores_of(model, [case.image_path for case in cases], options.split, on_progress)
    strangers = _scores_of(model, others, "strangers", on_progress)
    metrics = {name: detection_metrics(own[name], strangers[name]) for name in own}
    known = model.stranger_score
    flagged = None
    if known is not None and FEATURES in own:
        first, second = (float((s[FEATURES] > known.threshold).mean()) for s in (own, strangers))
        flagged = (first, second)
    report = StrangerReport(
        own=len(own[CONFIDENCE]),
        strangers=len(strangers[CONFIDENCE]),
        metrics=metrics,
        flagged=flagged,
        false_alarm_rate=None if known is None else known.false_alarm_rate,
    )
    content = {
        "split": options.split,
        "strangers_folder": folder.name,
        "images": report.own,
        "strangers": report.strangers,
        "metrics": metrics,
        "threshold": None if known is None else known.threshold,
        "false_alarm_rate": report.false_alarm_rate,
        "flagged": None if flagged is None else {"own": flagged[0], "strangers": flagged[1]},
        "definitions": _DEFINITIONS,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "ood.json", json.dumps(content, indent=1))
    pairs = {name: (own[name], strangers[name]) for name in own}
    stranger_plot(pairs, out / "ood.png", threshold=None if known is None else known.threshold)
    return report


def _scores_of(
    model: Model, paths: Sequence[Path], label: str, on_progress: Progress | None
) -> dict[str, Floats]:
    """Both scores (N,) of files; those of a volume are the means of its slices."""
    parts = []
    for number, path in enumerate(paths, 1):
        slices = _scores(model, model.read(path))
        parts.append({name: values.mean(keepdims=True) for name, values in slices.items()})
        if on_progress is not None:
            on_progress(label, number, len(paths))
    return _joined(parts)


def _scores(model: Model, image: Image) -> dict[str, Floats]:
    """Both scores (D,) of the slices of an image, high = unlike."""
    logits, unlike = model.judged(model.network_pixels(image), model.stranger_pixels(image))
    confidence = np.array([probabilities_of(one).max(axis=0).mean() for one in logits], np.float64)
    scores = {CONFIDENCE: 1 - confidence}
    return scores if np.isnan(unlike).any() else {FEATURES: unlike, **scores}


def _joined(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
