"""Validation scores of the weights, and the sweep over the training images."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from segconf.confidence import predict_with_confidence
from segconf.data.training_set import Batch
from segconf.history.predictions import PredictionHistory
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.processes import ProcessGroup
from segconf.runs.epochs import Scores
from segconf.training.step import in_mode, record


def validate(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    classes: int,
    labels: bool = False,
    device: torch.device,
    group: ProcessGroup,
) -> Scores | None:
    """Metrics over all validation pixels, of which the processes share the images.

    Args:
        model: the network.
        batches: of this process.
        classes: number of classes.
        labels: whether the masks are labels, of one pixel.
        device: where the network computes.
        group: the processes.

    Returns:
        None when the network's output is not finite.
    """
    metrics = ConfidenceMetrics(num_classes=classes)
    broken = torch.zeros((), dtype=torch.int64)
    with in_mode(model, training=False), torch.no_grad():
        for batch in batches:
            if batch.masks is None:
                raise ValueError("validation needs masks")
            # Log-variances, of the method that has them, come after the logits.
            logits = model(batch.images.to(device))[:, :classes].float()  # (B, K, H, W)
            if logits.isfinite().all():
                metrics.update(logits, batch.masks)
            else:
                broken += 1
    if group.total(broken):
        return None
    group.merge(metrics)
    values = metrics.compute()
    return Scores(
        miou=None if labels else values["miou"],
        aurc=values["aurc"],
        ece=values["ece"],
        nll=values["nll"],
        accuracy=values["accuracy"] if labels else None,
    )


def sweep(
    model: nn.Module,
    batches: Iterable[Batch],
    history: PredictionHistory,
    *,
    epoch: int,
    device: torch.device,
) -> None:
    """Record what the same weights predict for every training image (Eq. 1 to the letter)."""
    with in_mode(model, training=False), torch.no_grad():
        for batch in batches:
            outputs = model(batch.images.to(device))  # (B, K', H, W)
            prediction, _ = predict_with_confidence(outputs)
            record(history, batch, prediction, outputs, epoch=epoch)


def labeled_logits(
    model: nn.Module, batches: Iterable[Batch], *, classes: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (B, K, H, W) and masks (B, H, W) of batches, in evaluation mode."""
    with in_mode(model, training=False), torch.no_grad():
        for batch in batches:
            if batch.masks is None:
                raise ValueError("labeled images need masks")
            logits = model(batch.images.to(device))[:, :classes].float()
            yield logits, batch.masks.to(device)
