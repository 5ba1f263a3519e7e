"""Kernel calibration error as a penalty (MMCE, Kumar et al. 2018)."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from segconf.confidence import predict_with_confidence
from segconf.config.schema import LossConfig
from segconf.conventions import IGNORE
from segconf.losses.kernel_calibration import mmce, sampled_rows
from segconf.methods.method import LossContext, Method, StepOutputs, register


@register
class KernelCalibration(Method):
    """Cross-entropy, and a kernel estimate of the calibration error as a penalty."""

    name = "mmce"
    terms: ClassVar[tuple[str, ...]] = ("supervised", "mmce")

    def weights(self, loss: LossConfig) -> Mapping[str, float]:
        """The penalty beside the cross-entropy."""
        return {"supervised": 1.0, "mmce": loss.mmce_weight}

    def loss(self, step: StepOutputs, context: LossContext) -> dict[str, Tensor]:
        """Cross-entropy, and the MMCE of labeled pixels of all processes."""
        terms = super().loss(step, context)
        counted = step.masks != IGNORE  # (B, H, W)
        prediction, confidence = predict_with_confidence(step.outputs)  # (B, H, W) each
        correct = (prediction == step.masks)[counted].to(confidence)  # (N,)
        confidences = context.group.gather(confidence[counted])
        corrects = context.group.gather(correct)
        rows = sampled_rows(len(corrects), context.loss.mmce_pixels, context.generator)
        return terms | {"mmce": mmce(confidences[rows], corrects[rows])}
