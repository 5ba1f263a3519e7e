"""Temperature scaling: one number that logits are divided by, fitted by the NLL."""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from segconf.calibration.calibrators import TemperatureScaling
from segconf.conventions import IGNORE
from segconf.errors import DataError
from segconf.metrics.bootstrap import group_numbers

BOUNDS = (0.05, 20.0)
"""A temperature beyond these says that the images cannot tell it, not that it is needed."""


MAX_PASSES = 20


NORMAL_975 = 1.959963984540054
_WIDEST = math.log(1e3)
_FLAT = 1e-6
"""Slope of the NLL over log T at which the search ends."""


Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]
"""A pass over all images: logits (B, K, H, W) and labels (B, H, W), 255 = ignore."""


@dataclass(frozen=True, slots=True)
class TemperatureFit:
    """The temperature with the smallest NLL.

    Attributes:
        temperature: T of softmax(z / T).
        interval: 95%, over groups of images.
        nll: mean NLL at the temperature.
        nll_before: mean NLL at temperature 1.
        passes: passes over the images that it took.
    """

    temperature: float
    interval: tuple[float, float]
    nll: float
    nll_before: float
    passes: int

    @property
    def calibrator(self) -> TemperatureScaling:
        """What divides logits by the temperature."""
        return TemperatureScaling(temperature=self.temperature)

    @property
    def at_bound(self) -> bool:
        """Whether the search ended at the edge of what is allowed."""
        return self.temperature in BOUNDS


def fit_temperature(batches: Batches, groups: Sequence[str] | None = None) -> TemperatureFit:
    """Minimise the mean NLL of softmax(z / T) over T by L-BFGS on log T, starting at T = 1.

    Logits are never held in memory: each evaluation of the NLL is a pass over the batches. Of all
    passes the best one counts, so the NLL is never larger than that at T = 1.

    Args:
        batches: makes a pass over all images.
        groups: of the images, for the interval; each on its own when not given.

    Raises:
        DataError: when no pixel is annotated, or the logits are not finite.
    """
    low, high = (math.log(bound) for bound in BOUNDS)
    position = torch.zeros((), dtype=torch.float64, requires_grad=True)  # log T
    tried: list[tuple[float, float]] = []  # NLL, log T
    optimizer = search_from(position, passes=MAX_PASSES, flat=_FLAT)

    def closure() -> Tensor:
        inside = min(max(position.item(), low), high)
        nll, slope = mean_nll(batches(), math.exp(inside))
        tried.append((nll, inside))
        # Beyond a bound the NLL is continued as a constant, so that the search stops there.
        position.grad = torch.tensor(slope if inside == position.item() else 0.0).to(position)
        return torch.tensor(nll, dtype=torch.float64)

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    nll, best = min(tried)
    temperature = BOUNDS[0] if best == low else BOUNDS[1] if best == high else math.exp(best)
    interval = temperature_interval(batches(), temperature, groups)
    return TemperatureFit(temperature, interval, nll, tried[0][0], len(tried) + 1)


def search_from(position: Tensor, *, passes: int, flat: float) -> torch.optim.LBFGS:
    """L-BFGS with a line search, which ends after so many passes or where the slope is flat."""
    return torch.optim.LBFGS(
        [position],
        max_iter=passes,
        max_eval=passes,
        tolerance_grad=flat,
        tolerance_change=flat**2,
        line_search_fn="strong_wolfe",
    )


def temperature_interval(
    batches: Iterable[tuple[Tensor, Tensor]],
    temperature: float,
    groups: Sequence[str] | None = None,
    *,
    mixture: tuple[float, float, float] = (1.0, 0.0, 0.0),
) -> tuple[float, float]:
    """95% interval of a fitted temperature, robust to the dependence of pixels within a group.

    The sandwich estimate for theta = log T with groups as units: with the slope ``s_g`` of the NLL
    of group g at theta and the curvature ``h`` of the NLL of all groups, the standard error is
    ``sqrt(sum_g s_g^2) / h``. With u = z / T and p = softmax(u), the curvature of a pixel is the
    variance of u under p plus its slope with opposite sign.

    In a mixture with weights w the slope of a pixel counts by the part ``r`` that the probability
    at the temperature has of the likelihood, and ``r (1 - r) slope^2`` goes off the curvature.

    Args:
        batches: a pass over all images.
        temperature: that was fitted.
        groups: of the images, in their order: slices of a volume belong together. Each image is on
            its own when not given.
        mixture: weights of the probabilities at the temperature, of those at 1, and of equal ones.
    """
    slopes: list[float] = []
    curvature = 0.0
    for logits, labels in batches:
        for image, truth in zip(logits, labels, strict=True):
            keep = truth != IGNORE  # (H, W)
            scaled = image.movedim(0, -1)[keep].double() / temperature  # (N, K)
            classes = truth[keep].long()[:, None]  # (N, 1)
            probabilities = scaled.softmax(dim=1)
            expected = (probabilities * scaled).sum(dim=1)  # (N,)
            own_slopes = scaled.gather(1, classes)[:, 0] - expected  # (N,)
            curvatures = (probabilities * scaled**2).sum(dim=1) - expected**2
            if mixture[0] < 1:
                plain = (scaled * temperature).softmax(dim=1).gather(1, classes)[:, 0]
                own = mixture[0] * probabilities.gather(1, classes)[:, 0]
                part = own / (own + mixture[1] * plain + mixture[2] / len(image))
                curvatures = part * (curvatures - (1 - part) * own_slopes**2)
                own_slopes = part * own_slopes
            slope = float(own_slopes.sum())
            slopes.append(slope)
            curvature += float(curvatures.sum()) - slope
    if curvature <= 0:
        return BOUNDS
    if groups is not None:
        slopes = np.bincount(group_numbers(groups), slopes).tolist()
    error = NORMAL_975 * math.sqrt(math.fsum(slope**2 for slope in slopes)) / curvature
    return temperature * math.exp(-min(error, _WIDEST)), temperature * math.exp(min(error, _WIDEST))


def mean_nll(batches: Iterable[tuple[Tensor, Tensor]], temperature: float) -> tuple[float, float]:
    """Mean NLL of softmax(z / T), and its derivative by log T.

    With u = z / T and p = softmax(u) a pixel of class y costs ``-log p_y``, whose derivative by
    log T is ``u_y - sum_k p_k u_k``.
    """
    total, slope, pixels = 0.0, 0.0, 0
    for logits, labels in batches:
        keep = labels != IGNORE  # (B, H, W)
        scaled = logits.movedim(1, -1)[keep].double() / temperature  # (N, K)
        truth = labels[keep].long()[:, None]  # (N, 1)
        log_probabilities = scaled.log_softmax(dim=1)
        total -= float(log_probabilities.gather(1, truth).sum())
        expected = (log_probabilities.exp() * scaled).sum()
        slope += float(scaled.gather(1, truth).sum() - expected)
        pixels += len(truth)
    if pixels == 0:
        raise DataError("no pixel of the validation masks is annotated: there is nothing to fit.")
    if not math.isfinite(total):
        raise DataError(
            "the network's output on the validation images is not finite. Train it again with a "
            "smaller training.learning_rate."
        )
    return total / pixels, slope / pixels


class WrittenBatches:
    """Batches that are computed once, and written to a temporary file while first read.

    Used as a context, at whose end the file is gone.
    """

    def __init__(self, batches: Batches) -> None:
        """Take the batches; none is made yet."""
        self._batches, self._count = batches, 0
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end of the context

    def __enter__(self) -> "WrittenBatches":
        """Nothing to prepare."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file."""
        self._file.close()

    def __call__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """A pass over the batches, the first of which must be read to its end."""
        self._file.seek(0)
        if self._count:
            for _ in range(self._count):
                logits, labels = (torch.from_numpy(np.load(self._file)) for _ in range(2))
                yield logits, labels
            return
        count = 0
        for logits, labels in self._batches():
            self._write(logits, labels)
            count += 1
            yield logits, labels
        self._count = count

    def _write(self, *tensors: Tensor) -> None:
        try:
            for tensor in tensors:
                np.save(self._file, tensor.numpy())
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: the network's output cannot be written "
                f"({error.strerror or error}). Free some space there, or name another folder with "
                "TMPDIR."
            ) from error
