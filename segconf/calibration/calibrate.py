"""Fit the temperature of a run on its validation images and keep it in the run."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from segconf.calibration.stored import FILE_NAME as THRESHOLD
from segconf.calibration.temperature import (
    MAX_PASSES,
    TemperatureFit,
    WrittenBatches,
    fit_temperature,
)
from segconf.checkpoints.weights import store_temperature
from segconf.data.cache import Progress
from segconf.devices import resolve_device
from segconf.errors import CheckpointError
from segconf.inference.model import Model
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.runs.run_cases import BATCH, GridCases, masked_cases
from segconf.runs.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class TemperatureCalibration:
    """What the temperature changed.

    Attributes:
        fit: the temperature and how it was found.
        images: validation images it was fitted on.
        before: metrics of these images at temperature 1.
        after: their metrics at the fitted temperature.
        removed_threshold: a referral threshold of the run that no longer holds, now removed.
    """

    fit: TemperatureFit
    images: int
    before: dict[str, float]
    after: dict[str, float]
    removed_threshold: Path | None


def calibrate(
    run_path: Path,
    *,
    data: Path | None = None,
    device: str = "auto",
    on_progress: Progress | None = None,
) -> TemperatureCalibration:
    """Fit one temperature by NLL on all validation pixels and store it with the weights.

    The fit starts from the network's own logits, whatever temperature the run had: calibrating
    twice gives the same result. A method of several passes runs each image through them once, and
    its logits wait in a temporary file.

    Args:
        run_path: the run folder.
        data: where the data set lies, if it has moved since.
        device: auto, cpu, cuda, cuda:N or mps.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    run = RunFolder(run_path)
    cases, root = masked_cases(run, "val", data)
    model = Model(run_path, device=resolve_device(device), batch_size=BATCH)
    stored, model.temperature = model.temperature, 1.0
    small = GridCases(cases, root, model.config, "val", on_progress)
    repeats = MAX_PASSES if model.passes.count == 1 else 1
    seen, total = 0, len(cases) * repeats

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        nonlocal seen
        for images, masks in small.batches():
            logits = torch.from_numpy(model.grid_logits(images))  # (B, K, h, w)
            yield logits, torch.from_numpy(masks)
            seen += len(logits)
            if on_progress is not None:
                words = f", at most {repeats} passes" if repeats > 1 else ""
                on_progress(f"validation images{words}", min(seen, total), total)

    before, after = (ConfidenceMetrics(num_classes=model.config.model.classes) for _ in range(2))
    with nullcontext(batches) if repeats > 1 else WrittenBatches(batches) as again:
        fit = fit_temperature(again)
        for logits, labels in again():
            before.update(logits, labels)
            after.update(logits / fit.temperature, labels)
    removed = None
    if fit.temperature != stored:
        removed = _remove_threshold(run_path)
        store_temperature(run_path, fit.temperature)
    return TemperatureCalibration(fit, len(cases), before.compute(), after.compute(), removed)


def _remove_threshold(run_path: Path) -> Path | None:
    """Remove a threshold on confidences that the new temperature changes."""
    path = run_path / THRESHOLD
    if not path.exists():
        return None
    try:
        path.unlink()
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be removed ({error.strerror}). Make the run folder writable."
        ) from error
    return path
