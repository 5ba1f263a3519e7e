"""`calibration.json` of a run: every number fitted on validation images, tied to the weights."""

from pathlib import Path
from typing import Literal

from segconf.calibration.calibrators import (
    Calibrator,
    EnsembleScaling,
    TemperatureScaling,
    VectorScaling,
)
from segconf.calibration.dice_scale import StoredDiceScale
from segconf.calibration.error_rates import ErrorRates, scale_of, supposed_scale
from segconf.config.ranges import (
    Count,
    Flag,
    Interval,
    NaturalNumber,
    Number,
    Probability,
    Section,
    Temperature,
)
from segconf.config.records import read_record, record_text
from segconf.errors import CheckpointError
from segconf.files import write_text
from segconf.overlays.layers import Scale

FILE_NAME = "calibration.json"
EMPTY_SCORE = -1.0
"""Of a case in which nothing was found, or whose score is not defined: below all others."""
DEFAULT_ORDER = "expected_dice"
"""Column of `cases.csv` that the review page sorts by, for a model without a calibration."""


class StoredTemperature(Section):
    """The temperature that logits are divided by, and what it does to the NLL.

    As in all parts, `images` is the number of validation images behind the numbers (a volume is
    one), and `groups` that of the groups which the intervals resample; null means the images.
    """

    value: Temperature
    interval: Interval
    nll_before: Number
    nll: Number
    images: Count
    groups: Count | None = None

    @property
    def calibrator(self) -> TemperatureScaling:
        """What divides logits by the temperature."""
        return TemperatureScaling(temperature=self.value)


class StoredEnsembleScaling(EnsembleScaling):
    """Ensemble temperature scaling, and what it does to the NLL."""

    interval: Interval
    """Of the temperature, with the weights held."""
    nll_before: Number
    nll_temperature: Number
    """With the temperature alone."""
    nll: Number
    images: Count
    groups: Count | None = None


class StoredVectorScaling(VectorScaling):
    """Vector scaling, and what it does to the NLL."""

    scale_intervals: tuple[Interval, ...]
    bias_intervals: tuple[Interval, ...]
    nll_before: Number
    nll_temperature: Number
    """With a temperature alone."""
    nll: Number
    images: Count
    groups: Count | None = None


class StoredThreshold(Section):
    """The lowest confidence at or above which at most `max_risk` of the pixels were wrong."""

    confidence: Probability
    max_risk: Probability
    risk: Probability | None
    """Fraction of wrong pixels among those at or above the threshold; null without any."""
    risk_interval: Interval | None
    coverage: Probability
    """Fraction of pixels at or above the threshold."""
    coverage_interval: Interval
    images: Count
    groups: Count | None = None


class StoredErrorRates(Section):
    """How often pixels were wrong, in bins of rising confidence; see `ErrorRates`."""

    confidence: tuple[Probability, ...]
    pixels: tuple[Count, ...]
    wrong: tuple[NaturalNumber, ...]
    images: Count
    groups: Count | None = None

    @property
    def rates(self) -> ErrorRates:
        """The same as a function of the confidence."""
        return ErrorRates(self.confidence, self.pixels, self.wrong)


class StoredReferral(Section):
    """Refer the cases whose score is below the threshold, within a budget; see `referral`."""

    score: str
    threshold: Number
    refer_fraction: Probability
    """The budget: largest fraction of ordinary images that may be referred."""
    reserved: Probability
    """The part of it that is kept for out-of-distribution images."""
    fraction: Probability
    """Fraction of the validation cases whose score is below the threshold."""
    kept_dice: Probability | None
    """Mean Dice of the others; null where there are none."""
    kept_dice_interval: Interval | None
    target_dice: Probability
    target_fraction: Probability
    """Fewest cases to refer, as a fraction, so that the others have the target; 1 = never."""
    images: Count
    groups: Count | None = None

    @property
    def refers_empty(self) -> bool:
        """Whether a case in which nothing was found is referred: few validation cases were."""
        return self.threshold > EMPTY_SCORE

    @property
    def reaches_target(self) -> bool:
        """Whether the validation cases that were not referred had the target as mean Dice."""
        return self.kept_dice is not None and self.kept_dice >= self.target_dice


class StoredLabelReferral(Section):
    """Refer the images whose label has a confidence below the threshold, within a budget."""

    threshold: Probability
    refer_fraction: Probability
    """The budget: largest fraction of ordinary images that may be referred."""
    fraction: Probability
    """Fraction of the validation images below the threshold."""
    accuracy: Probability
    """Of all validation images."""
    kept_accuracy: Probability
    """Of those that are not referred."""
    kept_accuracy_interval: Interval
    images: Count
    groups: Count | None = None


class StoredNote(Section):
    """A column of `cases.csv` is noted beyond what few validation cases had."""

    column: str
    limit: Number
    high: Flag
    """Whether values above the limit are noted, else those below."""
    fraction: Probability
    """Fraction of the validation cases beyond the limit."""
    images: Count
    groups: Count | None = None

    def is_beyond(self, value: float) -> bool:
        """Whether a value is noted; nan is not."""
        return value > self.limit if self.high else value < self.limit


class StoredReferralGuarantee(Section):
    """Keep the cases whose score exceeds the threshold: their mean Dice has a guarantee."""

    score: str
    target_dice: Probability
    """Mean Dice of what is kept, with probability 1 - delta over the validation images."""
    delta: Probability
    threshold: Number | None
    """Null where so few groups cannot prove it at this level."""
    fraction: Probability
    """Fraction of the validation images that were referred."""
    kept_dice: Probability | None
    """Mean Dice of the validation groups that were kept."""
    p_value: Probability
    groups: Count
    images: Count


class StoredContour(Section):
    """A line that keeps a promise on average over new images of the same kind."""

    kind: Literal["outer", "inner"]
    class_index: Count
    alpha: Probability
    """Outer: largest expected fraction of a lesion outside of the line. Inner: largest expected
    fraction of the area inside of it that is not lesion."""
    threshold: Probability | None
    """The line surrounds the pixels whose probability of the class is at least this; null where so
    few groups cannot promise it."""
    risk: Probability | None
    """Mean loss of the validation groups at the threshold."""
    groups: NaturalNumber
    """Groups behind it, such as patients or volumes; for the outer line those with the class."""
    images: Count


class StoredContourCurve(Section):
    """Thresholds of a contour for many promises: pairs of alpha and threshold, where possible."""

    kind: Literal["outer", "inner"]
    class_index: Count
    points: tuple[tuple[Probability, Probability], ...]


class Calibration(Section):
    """What `calibrate` fitted for a run. Each part may be missing."""

    format: Literal["segconf calibration 2"] = "segconf calibration 2"
    weights_sha256: str = ""
    temperature: StoredTemperature | None = None
    ets: StoredEnsembleScaling | None = None
    vector: StoredVectorScaling | None = None
    """At most one of the three: temperature, ets, vector."""
    threshold: StoredThreshold | None = None
    error_rates: StoredErrorRates | None = None
    referral: StoredReferral | None = None
    label_referral: StoredLabelReferral | None = None
    notes: tuple[StoredNote, ...] = ()
    expected_dice: StoredDiceScale | None = None
    referral_guarantee: StoredReferralGuarantee | None = None
    contours: tuple[StoredContour, ...] = ()
    contour_curves: tuple[StoredContourCurve, ...] = ()

    @property
    def calibrator(self) -> Calibrator | None:
        """What is done to logits; None where nothing was fitted."""
        if self.temperature is not None:
            return self.temperature.calibrator
        return self.ets or self.vector

    def expected_dice_of(self, expected: float) -> float:
        """Expected Dice as validation images reached it; as it is where nothing was fitted."""
        return expected if self.expected_dice is None else self.expected_dice.of(expected)

    def scale(self, classes: int) -> Scale:
        """Which pixels are shaded; a network has so many classes."""
        if self.error_rates is None:
            return supposed_scale(classes)
        return scale_of(self.error_rates.rates, classes)

    @property
    def order(self) -> str:
        """Column of `cases.csv` that the review page sorts by."""
        return DEFAULT_ORDER if self.referral is None else self.referral.score


def read_calibration(run: Path, weights_sha256: str) -> Calibration:
    """Calibration in a run folder, or beside a weights file; an empty one where there is none.

    Raises:
        CheckpointError: the file is damaged, or belongs to other weights.
    """
    folder = run if run.is_dir() else run.parent
    path = folder / FILE_NAME
    if not path.is_file():
        return Calibration(weights_sha256=weights_sha256)
    way_out = f"Fit it again with: segconf calibrate {folder}, or remove the file."
    found = read_record(path, Calibration, error=CheckpointError, way_out=way_out)
    if found.weights_sha256 != weights_sha256:
        raise CheckpointError(f"{path}: belongs to other weights than those beside it. {way_out}")
    return found


def write_calibration(run: Path, calibration: Calibration) -> None:
    """Write `calibration.json` completely or not at all."""
    write_text(run / FILE_NAME, record_text(calibration))
