"""Ensemble temperature scaling and vector scaling, fitted by the NLL of the validation pixels.

Both start from the fitted temperature, and of all that was tried the best counts: neither is worse
than the temperature on the images of the fit.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from segconf.calibration.calibrators import EnsembleScaling, VectorScaling
from segconf.calibration.stored import (
    StoredEnsembleScaling,
    StoredTemperature,
    StoredVectorScaling,
)
from segconf.calibration.temperature import (
    BOUNDS,
    NORMAL_975,
    Batches,
    TemperatureFit,
    fit_temperature,
    search_from,
    temperature_interval,
)
from segconf.config.ranges import Interval
from segconf.conventions import IGNORE
from segconf.metrics.bootstrap import group_numbers

MAX_PASSES = 60
LARGEST = 20.0
"""Absolute scale and bias beyond which the images cannot tell a class's own."""
_START = (0.9, 0.05, 0.05)
"""Weights from which the search starts: inside, where all of them have a gradient."""
_FLAT = 1e-7
_SINGULAR = 1e-10


@dataclass(frozen=True, slots=True)
class EnsembleFit:
    """The mixture with the smallest NLL.

    Attributes:
        calibrator: temperature and weights.
        interval: 95% of the temperature, over groups of images and with the weights held.
        nll: mean NLL of the mixture.
        nll_before: mean NLL without any calibrator.
        nll_temperature: mean NLL with the temperature alone.
    """

    calibrator: EnsembleScaling
    interval: Interval
    nll: float
    nll_before: float
    nll_temperature: float

    @property
    def at_bound(self) -> bool:
        """Whether the temperature, where it counts, is at the edge of what is allowed."""
        temperature = self.calibrator.temperature
        at_end = any(math.isclose(temperature, bound) for bound in BOUNDS)
        return self.calibrator.weights[0] > 0 and at_end


@dataclass(frozen=True, slots=True)
class VectorFit:
    """The scales and biases with the smallest NLL; intervals are 95%, over groups of images."""

    calibrator: VectorScaling
    scale_intervals: tuple[Interval, ...]
    bias_intervals: tuple[Interval, ...]
    nll: float
    nll_before: float
    nll_temperature: float

    @property
    def at_bound(self) -> bool:
        """Whether a number is at the edge of what is allowed."""
        return any(abs(value) >= LARGEST for value in self.calibrator.scales)


def fit_ensemble(batches: Batches, groups: Sequence[str] | None = None) -> EnsembleFit:
    """Minimise the NLL of ``w1 softmax(z / T) + w2 softmax(z) + w3 / K`` over T and the weights.

    The weights are a softmax of three numbers, so that they stay on the simplex.
    """
    single = fit_temperature(batches, groups)
    low, high = (math.log(bound) for bound in BOUNDS)

    def log_probabilities(logits: Tensor, position: Tensor) -> Tensor:
        scaled = logits / position[0].clamp(low, high).exp()
        equal = torch.full_like(logits, -math.log(logits.shape[1]))
        parts = torch.stack([scaled.log_softmax(dim=1), logits.log_softmax(dim=1), equal])
        return (parts + position[1:].log_softmax(dim=0)[:, None, None]).logsumexp(dim=0)

    start = [math.log(single.temperature), *(math.log(weight) for weight in _START)]
    nll, best = _minimise(batches, start, log_probabilities)
    first, second, third = best[1:].softmax(dim=0).tolist()
    found = EnsembleScaling(
        temperature=math.exp(min(max(float(best[0]), low), high)), weights=(first, second, third)
    )
    if nll >= single.nll:
        nll = single.nll
        found = EnsembleScaling(temperature=single.temperature, weights=(1.0, 0.0, 0.0))
    interval = temperature_interval(batches(), found.temperature, groups, mixture=found.weights)
    return EnsembleFit(found, interval, nll, single.nll_before, single.nll)


def fit_vector(batches: Batches, groups: Sequence[str] | None = None) -> VectorFit:
    """Minimise the NLL of ``softmax(s z + b)`` over a scale and a bias for each class.

    A number added to all biases changes nothing: they are given with a mean of 0.
    """
    single = fit_temperature(batches, groups)
    classes = next(iter(batches()))[0].shape[1]

    def log_probabilities(logits: Tensor, position: Tensor) -> Tensor:
        scales, biases = position.clamp(-LARGEST, LARGEST).reshape(2, classes).unbind()
        return (logits * scales + biases).log_softmax(dim=1)

    start = [1 / single.temperature] * classes + [0.0] * classes
    nll, best = _minimise(batches, start, log_probabilities)
    if nll >= single.nll:
        nll, best = single.nll, torch.tensor(start, dtype=torch.float64)
    scales, biases = best.clamp(-LARGEST, LARGEST).reshape(2, classes)
    biases = biases - biases.mean()
    found = VectorScaling(scales=tuple(scales.tolist()), biases=tuple(biases.tolist()))
    errors = _vector_errors(batches, scales, biases, groups).reshape(2, classes)
    return VectorFit(
        found,
        _intervals(scales, errors[0]),
        _intervals(biases, errors[1]),
        nll,
        single.nll_before,
        single.nll,
    )


def _intervals(values: Tensor, errors: Tensor) -> tuple[Interval, ...]:
    ends = torch.stack([values - errors, values + errors], dim=1)  # (K, 2)
    return tuple((low, high) for low, high in ends.tolist())


Fit = TemperatureFit | EnsembleFit | VectorFit
Scaling = Literal["temperature", "ets", "vector", "none"]


def fit_scaling(scaling: Scaling, batches: Batches, groups: Sequence[str]) -> Fit | None:
    """Fit the calibrator of that name.

    Args:
        scaling: its kind; `none` for no calibrator at all.
        batches: makes a pass over all images.
        groups: of the images, for the intervals.
    """
    match scaling:
        case "temperature":
            return fit_temperature(batches, groups)
        case "ets":
            return fit_ensemble(batches, groups)
        case "vector":
            return fit_vector(batches, groups)
        case "none":
            return None


def stored_parts(fit: Fit | None, *, images: int, groups: int) -> dict[str, Any]:
    """A fit as the parts of `calibration.json`, of which at most one is there."""
    if fit is None:
        return {}
    counts = {"images": images, "groups": groups}
    common: dict[str, Any] = {"nll_before": fit.nll_before, "nll": fit.nll, **counts}
    if isinstance(fit, TemperatureFit):
        return {
            "temperature": StoredTemperature(value=fit.temperature, interval=fit.interval, **common)
        }
    numbers = fit.calibrator.model_dump() | common | {"nll_temperature": fit.nll_temperature}
    if isinstance(fit, EnsembleFit):
        return {"ets": StoredEnsembleScaling(interval=fit.interval, **numbers)}
    numbers |= {"scale_intervals": fit.scale_intervals, "bias_intervals": fit.bias_intervals}
    return {"vector": StoredVectorScaling(**numbers)}


def _minimise(
    batches: Batches, start: list[float], log_probabilities: Callable[[Tensor, Tensor], Tensor]
) -> tuple[float, Tensor]:
    """Smallest mean NLL that was found by L-BFGS, and where; every evaluation is a pass."""
    position = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    tried: list[tuple[float, Tensor]] = []
    optimizer = search_from(position, passes=MAX_PASSES, flat=_FLAT)

    def closure() -> Tensor:
        optimizer.zero_grad()
        total, pixels = 0.0, 0
        for logits, truth in _pixels(batches):
            nll = -log_probabilities(logits, position).gather(1, truth[:, None]).sum()
            nll.backward()  # type: ignore[no-untyped-call]
            total += nll.item()
            pixels += len(truth)
        if position.grad is not None:
            position.grad /= pixels
        tried.append((total / pixels, position.detach().clone()))
        return torch.tensor(total / pixels, dtype=torch.float64)

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return min(tried, key=lambda one: one[0] if math.isfinite(one[0]) else math.inf)


def _pixels(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits (N, K) and classes (N,) of the annotated pixels, batch by batch."""
    for logits, labels in batches():
        keep = labels != IGNORE  # (B, H, W)
        yield logits.movedim(1, -1)[keep].double(), labels[keep].long()


def _vector_errors(
    batches: Batches, scales: Tensor, biases: Tensor, groups: Sequence[str] | None
) -> Tensor:
    """Half widths (2K,) of the 95% intervals of scales and biases.

    The sandwich estimate with groups as units: with the gradient ``g`` of the NLL of each group and
    the Hessian ``H`` of the NLL of all, the covariance is ``H^-1 (sum g g^T) H^-1``. The direction
    in which nothing changes, all biases together, is left out by the pseudoinverse.
    """
    classes = len(scales)
    hessian = torch.zeros(2 * classes, 2 * classes, dtype=torch.float64)
    gradients: list[Tensor] = []
    for logits, labels in batches():
        for image, truth in zip(logits, labels, strict=True):
            keep = truth != IGNORE  # (H, W)
            own = image.movedim(0, -1)[keep].double()  # (N, K)
            p = (own * scales + biases).softmax(dim=1)
            design = torch.cat([p * own, p], dim=1)  # (N, 2K)
            off = p - one_hot(truth[keep].long(), classes)
            gradients.append(torch.cat([(off * own).sum(dim=0), off.sum(dim=0)]))
            squares = [(p * own**2).sum(dim=0), (p * own).sum(dim=0), p.sum(dim=0)]
            first, mixed, second = (torch.diag(one) for one in squares)
            blocks = [torch.cat([first, mixed], dim=1), torch.cat([mixed, second], dim=1)]
            hessian += torch.cat(blocks) - design.T @ design
    slopes = torch.stack(gradients)  # (images, 2K)
    if groups is not None:
        numbers = torch.from_numpy(np.asarray(group_numbers(groups)))
        slopes = torch.zeros_like(slopes).index_add(0, numbers, slopes)
    inverse = torch.linalg.pinv(hessian, hermitian=True, rtol=_SINGULAR)
    variances: Tensor = (inverse @ slopes.T @ slopes @ inverse).diagonal()
    errors = NORMAL_975 * variances.clamp(min=0).sqrt()
    return errors.clamp(max=LARGEST)
