"""Which confidence calls for a second look: what a run measured, or a documented default."""

import json
from dataclasses import dataclass
from pathlib import Path

from segconf.errors import CheckpointError

FILE_NAME = "calibration.json"


DEFAULT_THRESHOLD = 0.7
"""Referral threshold of a run that has not chosen its own."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Referral threshold of a run.

    Attributes:
        threshold: pixels with less confidence are to be looked at.
        max_risk: share of wrong pixels above the threshold that was tolerated to choose it.
        right_below: share of validation pixels under the threshold that were right.
    """

    threshold: float = DEFAULT_THRESHOLD
    max_risk: float | None = None
    right_below: float | None = None

    @property
    def upper(self) -> float:
        """The second level that is shown, half way from the threshold to certainty."""
        return (1 + self.threshold) / 2


def read_calibration(run: Path) -> Calibration:
    """Calibration in a run folder, or beside a weights file; the default where there is none."""
    folder = run if run.is_dir() else run.parent
    path = folder / FILE_NAME
    if not path.is_file():
        return Calibration()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        threshold = float(values["threshold"])
        optional = {
            name: float(values[name])
            for name in ("max_risk", "right_below")
            if values.get(name) is not None
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: expected a JSON object with a number `threshold` ({error}). "
            "Remove the file, or measure the threshold again."
        ) from error
    if not all(0 <= value <= 1 for value in (threshold, *optional.values())):
        raise CheckpointError(f"{path}: thresholds and shares lie between 0 and 1.")
    return Calibration(threshold, **optional)
