"""After the last epoch: the out-of-distribution detector and the calibration of a run."""

from functools import partial
from pathlib import Path

import torch

from segconf.calibration.calibrate import calibrate as calibrate_run
from segconf.calibration.stored import Calibration, read_calibration
from segconf.checkpoints.weights import load_checkpoint, weights_hash
from segconf.config.schema import ExperimentConfig
from segconf.data.splits import Split
from segconf.errors import CheckpointError, FileError, TrainingError
from segconf.ood.detector import Described, OODDetector, load_detector, save_detector
from segconf.ood.features import (
    FeatureExtractor,
    band_of,
    describe_cases,
    described_cases,
    feature_grid,
)
from segconf.processes import ProcessGroup
from segconf.runs.run_folder import RunFolder
from segconf.training.epoch import TrainingListener


def finish_run(
    config: ExperimentConfig,
    run: RunFolder,
    split: Split,
    group: ProcessGroup,
    listener: TrainingListener,
    calibrate_from: Path | None,
) -> None:
    """Fit what belongs to the best weights, unless it is there for these weights already."""
    if not group.agree(run.best_file.is_file()):
        return  # no epoch has finished
    sha256 = group.agree(weights_hash(run.path))
    has_detector = config.training.ood_detector and not config.has_table
    if has_detector and not group.agree(_has_detector(run, sha256)):
        _fit_detector(config, run, split, group, listener, sha256)
    if calibrate_from is not None and not group.agree(_has_calibration(run, sha256)):
        device, progress = config.training.device, listener.on_prepare
        # Only the first process reads and writes: a validation set is small.
        group.on_first(
            lambda: calibrate_run(
                run.path, data=calibrate_from, device=device, on_progress=progress
            )
        )


def _has_calibration(run: RunFolder, sha256: str) -> bool:
    try:
        return read_calibration(run.path, sha256) != Calibration(weights_sha256=sha256)
    except CheckpointError:
        return False  # that of earlier weights


def _has_detector(run: RunFolder, sha256: str) -> bool:
    try:
        return load_detector(run.path, sha256) is not None
    except CheckpointError:
        return False  # that of earlier weights


def _fit_detector(
    config: ExperimentConfig,
    run: RunFolder,
    split: Split,
    group: ProcessGroup,
    listener: TrainingListener,
    sha256: str,
) -> None:
    """Describe training and validation images with the best weights, and keep the statistics."""
    device = torch.device("cpu") if group.world > 1 else None
    network = load_checkpoint(run.path, device=device).model
    chosen = described_cases(split)
    grid = feature_grid(config.data.size, config.data.task)
    band = band_of(next(iter(chosen.values())), grid)
    extractor = FeatureExtractor.of(network, config, grid, band)
    if extractor is None:
        return
    parts = [
        describe_cases(extractor, cases, group, partial(listener.on_prepare, label))
        for label, cases in chosen.items()
    ]
    if not group.is_first or any(part is None for part in parts):
        return
    training, validation = (part for part in parts if part is not None)
    described = Described(grid, band, extractor.channels())
    detector = OODDetector.fit(training, validation, described, split.validation)
    try:
        save_detector(run.detector_file, detector, sha256)
    except FileError as error:
        raise TrainingError(
            f"{run.detector_file}: cannot be written ({error.reason}). Free some space and "
            f"continue with: segconf train --resume {run.path}"
        ) from error
