"""Calibrate a run on its validation images: calibrator, risk threshold, referral, contours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from segconf.calibration.calibrator_fits import Fit, Scaling, fit_scaling, stored_parts
from segconf.calibration.calibrators import AS_IT_IS
from segconf.calibration.conformal import GUARANTEES
from segconf.calibration.fitted import (
    DEFAULT_MAX_RISK,
    DEFAULT_REFER_FRACTION,
    DEFAULT_TARGET_DICE,
    Targets,
)
from segconf.calibration.label_fit import fit_labels
from segconf.calibration.mask_fit import fit_masks
from segconf.calibration.stored import Calibration, write_calibration
from segconf.calibration.temperature import WrittenBatches
from segconf.checkpoints.weights import store_calibrator
from segconf.config.schema import ExperimentConfig
from segconf.data.cache import Progress
from segconf.data.cases import images_of
from segconf.devices import resolve_device
from segconf.errors import ConfigError, DataError
from segconf.inference.torch_model import TorchModel
from segconf.ood.detector import FALSE_ALARMS
from segconf.runs.run_cases import GridCases, batch_size, masked_cases
from segconf.runs.run_folder import RunFolder
from segconf.runs.run_lock import alone_in_run


@dataclass(frozen=True, slots=True)
class CalibrationResult:
    """What was fitted and stored, and what the calibrator changed.

    Attributes:
        calibration: the content of `calibration.json`.
        fit: of the calibrator; None without one.
        before: metrics of the validation images by the network's own logits.
        after: their metrics by the calibrated logits.
        classes: of the network.
    """

    calibration: Calibration
    fit: Fit | None
    before: dict[str, float]
    after: dict[str, float]
    classes: int


@alone_in_run
def calibrate(  # noqa: PLR0913 - an entry function: every value that can be chosen
    run: Path | str,
    *,
    scaling: Scaling = "temperature",
    max_risk: float = DEFAULT_MAX_RISK,
    target_dice: float = DEFAULT_TARGET_DICE,
    refer_fraction: float = DEFAULT_REFER_FRACTION,
    guarantees: Sequence[float] = GUARANTEES,
    data: Path | str | None = None,
    device: str = "auto",
    on_progress: Progress | None = None,
) -> CalibrationResult:
    """Fit everything that a run promises about new images, and store it in the run.

    The fit starts from the network's own logits, whatever was stored before: calibrating twice
    gives the same result. The network sees each image once; its logits wait in a temporary file.

    Args:
        run: the run folder.
        scaling: which calibrator is fitted by the NLL of all validation pixels: a `temperature`,
            `ets` (ensemble temperature scaling), `vector` (scale and bias of every class, which can
            change the masks), or `none`.
        max_risk: largest fraction of wrong pixels at or above the confidence threshold.
        target_dice: mean Dice that the cases which are not referred should have.
        refer_fraction: largest fraction of ordinary images that may be referred.
        guarantees: expected losses that the outer and inner contours promise; see `conformal`.
        data: where the data set lies, if it has moved since.
        device: auto, cpu, cuda, cuda:N or mps.
        on_progress: called with what is done, how many images are, and how many there are.
    """
    targets = Targets(max_risk, target_dice, refer_fraction, guarantees)
    targets.check()
    path = Path(run)
    folder = RunFolder(path)
    reserved = reserved_budget(folder.config(), refer_fraction)
    cases, root = masked_cases(folder, "val", None if data is None else Path(data))
    size = batch_size(folder.config())
    model = TorchModel(path, device=resolve_device(device), batch_size=size, calibrated=False)
    config = model.config
    images = images_of(cases)
    cases = tuple(case for image in images for case in image.cases)
    groups = [case.group for case in cases]
    grid_cases = GridCases(cases, root, config, "val", on_progress)
    classes = config.model.classes
    with WrittenBatches(lambda: _logits(model, grid_cases, on_progress)) as batches:
        fit = fit_scaling(scaling, batches, groups)
        calibrator = AS_IT_IS if fit is None else fit.calibrator
        if config.data.task == "classification":
            found = fit_labels(
                batches(), groups, calibrator, targets, classes=classes, reserved=reserved
            )
        else:
            found = fit_masks(
                batches(), images, calibrator, targets, classes=classes, reserved=reserved
            )
    if not found.pooled.pixels:
        raise DataError(
            f"{root}: no pixel of the validation masks is annotated: there is nothing to fit."
        )
    calibration = Calibration(
        weights_sha256=model.weights_sha256,
        **stored_parts(fit, images=len(images), groups=len(set(groups))),
        **found.parts,
    )
    store_calibrator(path, calibrator)
    write_calibration(path, calibration)
    before, after = found.before.compute(), found.pooled.compute()
    return CalibrationResult(calibration, fit, before, after, classes)


def reserved_budget(config: ExperimentConfig, refer_fraction: float) -> float:
    """What the out-of-distribution detector of a run may refer; a smaller budget is refused."""
    if not config.training.ood_detector or config.has_table:
        return 0.0
    if refer_fraction < FALSE_ALARMS:
        raise ConfigError(
            f"refer_fraction = {refer_fraction}: expected at least {FALSE_ALARMS:.2g}, the "
            "fraction of ordinary images that are out of distribution to the detector."
        )
    return FALSE_ALARMS


def _logits(
    model: TorchModel, cases: GridCases, on_progress: Progress | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (B, K, h, w) and masks (B, h, w) of all images."""
    done = 0
    for images, masks in cases.batches():
        logits = torch.from_numpy(model.grid_logits(images))
        yield logits, torch.from_numpy(masks)
        done += len(logits)
        if on_progress is not None:
            on_progress("validation images", done, len(cases.cases))
