"""Evaluate a run on the validation or test images of its data set; the run stays as it is."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segconf.calibration.conformal import pooled_by_group
from segconf.checkpoints.state import last_weights
from segconf.checkpoints.weights import save_checkpoint
from segconf.conventions import ASSUMPTIONS
from segconf.data.cache import Progress
from segconf.data.cases import ImageCases, images_of
from segconf.devices import resolve_device
from segconf.errors import ConfigError
from segconf.evaluation.about_run import about_run
from segconf.evaluation.error_bands import (
    DiceAgreement,
    ErrorBand,
    dice_agreement,
    error_bands,
    page_rates,
)
from segconf.evaluation.evaluator import CHALLENGE_LIMIT, Evaluator, Tolerances
from segconf.evaluation.guarantees import (
    KeptGuarantee,
    KeptReferral,
    KeptRisk,
    kept_curves,
    kept_guarantees,
    kept_referral,
    kept_risk,
)
from segconf.evaluation.label_evaluation import evaluated_labels
from segconf.evaluation.label_report import LabelReport, build_label_report, write_label_report
from segconf.evaluation.report import REPORT_FILES, EvaluationReport, build_report, write_report
from segconf.images.io import read_header
from segconf.images.masks import read_mask
from segconf.inference.torch_model import TorchModel, native_logits
from segconf.locks import locked
from segconf.methods.method import method_of
from segconf.plots.image_scores import expected_dice_plot
from segconf.plots.promised_and_kept import guarantee_plot
from segconf.processes import ProcessGroup, joined
from segconf.runs.run_cases import (
    GridCases,
    batch_size,
    check_report,
    masked_cases,
    whole_images,
)
from segconf.runs.run_folder import RunFolder

Pair = tuple[Tensor, NDArray[np.uint8]]


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """What is evaluated, and on which grid."""

    split: Literal["test", "val"] = "test"
    data: Path | None = None
    native: bool = False
    device: str = "auto"
    tolerances: Tolerances = field(default_factory=Tolerances)
    others: tuple[Path, ...] = ()
    """What else is read for the report, which may not lie in it."""
    weights: Literal["best", "last"] = "best"
    """Of the best validation mIoU or accuracy, or of the last epoch, without any calibration."""

    @property
    def folder(self) -> str:
        """Name of the report's folder in `evaluation/` of a run."""
        return self.split if self.weights == "best" else f"{self.split}-last"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The report, where it was written, and what the run keeps of its promises, if it has any."""

    folder: Path
    report: EvaluationReport | LabelReport
    threshold: KeptRisk | None
    guarantees: tuple[KeptGuarantee, ...] = ()
    referral: KeptReferral | None = None
    error_bands: tuple[ErrorBand, ...] = ()
    expected_dice: DiceAgreement | None = None


def evaluate(
    run: Path | str,
    options: EvaluationOptions | None = None,
    *,
    out: Path | str | None = None,
    on_progress: Progress | None = None,
) -> Evaluation | None:
    """Evaluate the weights of a run and write the report.

    Args:
        run: the run folder.
        options: split, data and grid; the test images on the grid of the network by default.
        out: folder of the report; `evaluation/<split>` of the run when not given.
        on_progress: called with what is done, how many images are, and how many there are.

    Returns:
        The evaluation; None on all processes but the first.
    """
    options = options or EvaluationOptions()
    device = resolve_device(options.device)
    run_folder = RunFolder(Path(run))
    run_folder.data()  # says so if this is no run folder, before anything slow begins
    given = None if out is None else Path(out)
    inputs = options.others
    check_report(given, run_folder, data=options.data, known=REPORT_FILES, inputs=inputs)
    with joined(device) as group:
        model = _model(run_folder, options, device)
        source = _Source(run_folder, model, options, group, on_progress)
        folder = given or run_folder.path / "evaluation" / options.folder
        if model.config.data.task == "classification":
            return source.evaluate_labels(folder)
        evaluator = source.evaluate(options.split)
        if not group.is_first:
            return None
        threshold = kept_risk(model.calibration.threshold, evaluator.pooled["all"])
        about = _about(run_folder, model, options)
        about["threshold"] = None if threshold is None else asdict(threshold)
        promises = model.calibration
        pooled = pooled_by_group(evaluator.counts, evaluator.groups)
        guarantees = kept_guarantees(pooled, promises.contours)
        about["guarantees"] = [one.plain() for one in guarantees]
        referral = kept_referral(
            promises.referral_guarantee, evaluator.rows, evaluator.referral_scores
        )
        about["referral_guarantee"] = None if referral is None else asdict(referral)
        about["assumptions"] = ASSUMPTIONS
        bands = error_bands(evaluator.pooled, model.scale) if promises.error_rates else []
        about["error_bands"] = [one.plain() for one in bands]
        about["page"] = {
            name: asdict(page_rates(bands, shaded=name == "shaded"))
            for name in (("shaded", "clear") if bands else ())
        }
        agreement = dice_agreement(evaluator.rows)
        about["expected_dice"] = asdict(agreement)
        report = build_report(evaluator, about)
        pairs = np.array([(row.expected_dice, row.dice) for row in evaluator.rows])
        with locked(folder, wait=True):  # no mixture of two evaluations
            write_report(report, folder)
            if guarantees:
                curves = kept_curves(pooled, promises.contour_curves)
                guarantee_plot(curves, folder / "guarantees.png", note=ASSUMPTIONS)
            expected_dice_plot(
                pairs,
                folder / "expected_dice.png",
                error=agreement.mean_absolute_error,
                spearman=agreement.spearman,
            )
        return Evaluation(
            folder, report, threshold, tuple(guarantees), referral, tuple(bands), agreement
        )


def _model(run: RunFolder, options: EvaluationOptions, device: torch.device) -> TorchModel:
    """The network with the weights that were asked for."""
    if options.weights == "best":
        return TorchModel(run.path, device=device, batch_size=batch_size(run.config()))
    config = run.config()
    method = method_of(config)
    if method.weight_files(run.best_file, config):
        raise ConfigError(
            f"weights = last: {run.path} is a run of {method.name}, which averages several "
            "networks. Evaluate it as it is."
        )
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "last.safetensors"
        save_checkpoint(file, last_weights(run), config)
        return TorchModel(file, device=device, batch_size=batch_size(config))


@dataclass(frozen=True, slots=True)
class _Source:
    """Where logits and masks come from."""

    run: RunFolder
    model: TorchModel
    options: EvaluationOptions
    group: ProcessGroup
    on_progress: Progress | None

    def evaluate(self, split: str) -> Evaluator:
        """Evaluate the images of a split, in parts; every rank gets the whole result."""
        cases, root = masked_cases(self.run, split, self.options.data)
        images = images_of(cases)
        own = images[self.group.rank :: self.group.world]
        evaluator = Evaluator(
            self.model.config.model.classes,
            self.options.tolerances,
            dice_scale=self.model.calibration.expected_dice_of,
        )
        pairs = self._native_pairs(own) if self.options.native else self._grid_pairs(own, root)
        for number, (image, (logits, mask)) in enumerate(zip(own, pairs, strict=True), start=1):
            spacing = self._spacing(image)
            evaluator.add_logits(image.name, logits, mask, group=image.group, spacing=spacing)
            if self.on_progress is not None and self.group.is_first:
                self.on_progress(f"{split} images", number, len(own))
        return self._merged(evaluator, [image.name for image in images])

    def evaluate_labels(self, folder: Path) -> Evaluation | None:
        """Evaluate the labels of the split and write the report; None but on the first process."""
        options, model = self.options, self.model
        if options.native:
            raise ConfigError("native: a label has no grid. Leave it out.")
        cases, root = masked_cases(self.run, options.split, options.data)
        found = evaluated_labels(
            model,
            images_of(cases),
            root,
            self.group,
            split=options.split,
            on_progress=self.on_progress,
        )
        if not self.group.is_first:
            return None
        threshold = kept_risk(model.calibration.threshold, found.pooled)
        about = _about(self.run, model, options)
        about["threshold"] = None if threshold is None else asdict(threshold)
        report = build_label_report(found, model.config.data.class_names, about)
        with locked(folder, wait=True):  # no mixture of two evaluations
            write_label_report(report, folder)
        return Evaluation(folder, report, threshold)

    def _spacing(self, image: ImageCases) -> tuple[float, ...] | None:
        """Millimetres between pixels of the grid on which an image is evaluated, if known."""
        size = None if self.options.native else self.model.config.data.size
        return read_header(image.path).spacing(size)

    def _merged(self, evaluator: Evaluator, order: Sequence[str]) -> Evaluator:
        for pooled in evaluator.pooled.values():
            self.group.merge(pooled)
        lists = (evaluator.rows, evaluator.summaries, evaluator.counts, evaluator.referral_scores)
        own = zip(*lists, strict=True)
        by_case = {one[0].case: one for part in self.group.collect(list(own)) for one in part}
        evaluator.rows = [by_case[case][0] for case in order]
        evaluator.summaries = [by_case[case][1] for case in order]
        evaluator.counts = [by_case[case][2] for case in order]
        evaluator.referral_scores = [by_case[case][3] for case in order]
        return evaluator

    def _grid_pairs(self, images: Sequence[ImageCases], root: Path) -> Iterator[Pair]:
        """Logits (D, K, h, w) and masks (D, h, w) on the network's grid."""
        cases = [case for image in images for case in image.cases]
        small = GridCases(cases, root, self.model.config, self.options.split, self.on_progress)
        batches = ((self.model.grid_logits(pixels), masks) for pixels, masks in small.batches())
        for _, logits, masks in whole_images(images, batches):
            yield torch.from_numpy(logits), masks

    def _native_pairs(self, images: Sequence[ImageCases]) -> Iterator[Pair]:
        """Logits brought to the grid of the files, as `predict` does, and the files' masks."""
        config = self.model.config
        for one in images:
            mask_path = one.cases[0].mask_path
            if mask_path is None:
                raise ValueError(f"image {one.name} has no mask")
            image = self.model.read(one.path)
            logits = native_logits(self.model, image)  # (K, H, W) or (D, K, H, W)
            mask = read_mask(
                mask_path,
                classes=config.model.classes,
                ignore_255=config.data.ignore_255,
                image=read_header(one.path),
            )
            slices = [case.slice_index for case in one.cases if case.slice_index is not None]
            yield (logits[slices], mask[slices]) if slices else (logits, mask)


def _about(run: RunFolder, model: TorchModel, options: EvaluationOptions) -> dict[str, object]:
    grid = "native" if options.native else None
    found = about_run(run, model, split=options.split, weights=options.weights, grid=grid)
    if model.config.data.task == "classification":
        return found
    return found | {
        "boundary_band_pixels": options.tolerances.boundary,
        "surface_tolerance": options.tolerances.surface,
        "foreground": "all classes but 0",
        "challenge_jaccard": f"IoU of an image, 0 below {CHALLENGE_LIMIT}",
    }
