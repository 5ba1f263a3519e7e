"""Labels of a split: the network sees every image once, and all of them are measured together."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from segconf.data.cache import Progress
from segconf.data.cases import ImageCases
from segconf.evaluation.label_report import EvaluatedLabels
from segconf.inference.torch_model import TorchModel
from segconf.metrics.label_summary import LabelSummaries
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.processes import ProcessGroup
from segconf.runs.run_cases import GridCases


def evaluated_labels(
    model: TorchModel,
    images: Sequence[ImageCases],
    root: Path,
    group: ProcessGroup,
    *,
    split: str,
    on_progress: Progress | None = None,
) -> EvaluatedLabels:
    """Predict and measure labeled images, in parts; every rank gets the whole result.

    Args:
        model: the network.
        images: with a label each.
        root: of the data set.
        group: the processes that share the images.
        split: what the images are called.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    own = images[group.rank :: group.world]
    cases = [image.cases[0] for image in own]
    grid = GridCases(cases, root, model.config, split, on_progress)
    pooled = ConfidenceMetrics(num_classes=model.config.model.classes)
    parts: list[tuple[LabelSummaries, torch.Tensor]] = []
    done = 0
    for pixels, labels in grid.batches():
        logits = torch.from_numpy(model.grid_logits(pixels))  # (B, K, 1, 1)
        pooled.update(logits, labels)
        flat = logits[:, :, 0, 0]  # (B, K)
        truth = torch.from_numpy(labels[:, 0, 0])
        parts.append((LabelSummaries.of(flat, truth), flat.softmax(dim=1)))
        done += len(labels)
        if on_progress is not None and group.is_first:
            on_progress(f"{split} images", done, len(own))
    group.merge(pooled)
    everything = [part for one in group.collect(parts) for part in one]
    names = [image.name for rank in range(group.world) for image in images[rank :: group.world]]
    places = {name: place for place, name in enumerate(names)}
    order = np.array([places[image.name] for image in images])
    return EvaluatedLabels(
        cases=[image.name for image in images],
        groups=[image.group for image in images],
        probabilities=torch.cat([p for _, p in everything]).numpy()[order],
        pooled=pooled,
        summaries=LabelSummaries.joined([one for one, _ in everything]).chosen(order),
    )
