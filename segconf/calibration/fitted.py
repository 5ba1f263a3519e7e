"""What is to be kept, and what was fitted: shared by masks and labels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from segconf.calibration.conformal import GUARANTEES
from segconf.calibration.error_rates import ErrorRates
from segconf.calibration.stored import StoredErrorRates, StoredThreshold
from segconf.calibration.threshold import Threshold
from segconf.errors import ConfigError
from segconf.metrics.streaming import ConfidenceMetrics

DEFAULT_MAX_RISK = 0.02
DEFAULT_TARGET_DICE = 0.85
DEFAULT_REFER_FRACTION = 0.2


@dataclass(frozen=True, slots=True)
class Targets:
    """What a calibration is to keep; see `calibrate`."""

    max_risk: float = DEFAULT_MAX_RISK
    target_dice: float = DEFAULT_TARGET_DICE
    refer_fraction: float = DEFAULT_REFER_FRACTION
    guarantees: Sequence[float] = GUARANTEES

    def check(self) -> None:
        """Refuse targets that are no fractions."""
        check_targets(
            max_risk=self.max_risk,
            target_dice=self.target_dice,
            refer_fraction=self.refer_fraction,
        )
        for alpha in self.guarantees:
            check_targets(guarantee=alpha)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Metrics of the validation images, and parts of the calibration by their names.

    Attributes:
        before: by the network's own logits.
        pooled: by the calibrated logits.
        parts: fields of `Calibration`.
    """

    before: ConfidenceMetrics
    pooled: ConfidenceMetrics
    parts: Mapping[str, Any]


def check_targets(**targets: float) -> None:
    """Refuse targets that are no fractions, by their names."""
    for name, value in targets.items():
        if not 0 < value < 1:
            raise ConfigError(f"{name} = {value}: expected a number between 0 and 1.")


def stored_threshold(found: Threshold, counts: Mapping[str, int]) -> StoredThreshold:
    """The threshold as it is stored, with the numbers of images and groups behind it."""
    return StoredThreshold(
        confidence=found.threshold,
        max_risk=found.max_risk,
        risk=found.risk if math.isfinite(found.risk) else None,
        risk_interval=None if math.isnan(found.risk) else found.risk_interval,
        coverage=found.coverage,
        coverage_interval=found.coverage_interval,
        **counts,
    )


def stored_error_rates(found: ErrorRates, counts: Mapping[str, Any]) -> StoredErrorRates:
    """The error rates as they are stored."""
    return StoredErrorRates(**asdict(found), **counts)
