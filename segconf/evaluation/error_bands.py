"""What a reader of the page relies on, measured: error rates of what is shaded, expected Dice.

The page shades pixels by error rates of validation images. Here the same bands of confidence are
counted on other images, close to the true outline and away from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from segconf.evaluation.evaluator import CaseScores
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.overlays.layers import Scale

BAND_STEPS = (4, 10, 20, 100)
"""Error rates between the bands: wrong 1 time in so many. That of the shading is always one."""


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Pixels of a band: what fraction of all they are, and how many of them are wrong."""

    fraction: float
    error_rate: float
    """nan without pixels."""


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """A band of confidence, what it promises, and what was measured.

    Attributes:
        above: it promises pixels that are wrong more than 1 time in so many; None in the last one.
        at_most: and not more than 1 time in so many; None in the first one.
        confidence: lowest confidence in the band, and the lowest that is not in it any more.
        shaded: whether the page shades it at first.
        all: all pixels.
        boundary: pixels near the true outline.
        interior: all others.
    """

    above: int | None
    at_most: int | None
    confidence: tuple[float, float]
    shaded: bool
    all: ErrorRate
    boundary: ErrorRate
    interior: ErrorRate

    def plain(self) -> dict[str, object]:
        """For `metrics.json`."""
        return asdict(self)


def error_bands(pooled: Mapping[str, ConfidenceMetrics], scale: Scale) -> list[ErrorBand]:
    """Bands by falling error rate, each with the pixels of an evaluation.

    Args:
        pooled: pixels of the strata `all` and `boundary`.
        scale: the error rates of the run.
    """
    known = {step.times for step in scale.steps}
    times = sorted(known.intersection(BAND_STEPS) | {scale.shaded_times})
    edges = [scale.lowest, *(scale.level(one) for one in times), 1.0]
    counts = {name: _counts(pooled[name], edges) for name in ("all", "boundary")}
    counts["interior"] = counts["all"] - counts["boundary"]
    rates = {name: _rates(values) for name, values in counts.items()}
    return [
        ErrorBand(
            above=times[number] if number < len(times) else None,
            at_most=times[number - 1] if number else None,
            confidence=(edges[number], edges[number + 1]),
            shaded=edges[number + 1] <= scale.shaded,
            all=rates["all"][number],
            boundary=rates["boundary"][number],
            interior=rates["interior"][number],
        )
        for number in range(len(edges) - 1)
    ]


@dataclass(frozen=True, slots=True)
class PageRates:
    """What the page shades, or what it leaves clear: all pixels, near the outline, elsewhere."""

    all: ErrorRate
    boundary: ErrorRate
    interior: ErrorRate


def page_rates(bands: Sequence[ErrorBand], *, shaded: bool) -> PageRates:
    """The bands that the page shades as one, or those that it leaves clear."""
    chosen = [band for band in bands if band.shaded is shaded]
    return PageRates(
        all=_together([band.all for band in chosen]),
        boundary=_together([band.boundary for band in chosen]),
        interior=_together([band.interior for band in chosen]),
    )


def _together(rates: Sequence[ErrorRate]) -> ErrorRate:
    fraction = sum(one.fraction for one in rates)
    wrong = sum(one.fraction * one.error_rate for one in rates if one.fraction)
    return ErrorRate(fraction, wrong / fraction if fraction else float("nan"))


def _counts(metrics: ConfidenceMetrics, edges: Sequence[float]) -> NDArray[np.int64]:
    """Pixels and wrong pixels (G, 2) between the edges; the last band holds certainty too."""
    above = []
    for edge in edges[:-1]:
        kept = metrics.selection_at(edge)
        pixels = round(kept.coverage * metrics.pixels) if metrics.pixels else 0
        above.append((pixels, round(kept.risk * pixels) if pixels else 0))
    found = np.array([*above, (0, 0)], np.int64)
    return np.asarray(found[:-1] - found[1:], np.int64)


def _rates(counts: NDArray[np.int64]) -> list[ErrorRate]:
    total = max(1, int(counts[:, 0].sum()))
    return [
        ErrorRate(pixels / total, wrong / pixels if pixels else float("nan"))
        for pixels, wrong in counts.tolist()
    ]


@dataclass(frozen=True, slots=True)
class DiceAgreement:
    """Expected Dice of images against the Dice they reached; nan without an image that has both."""

    images: int
    mean_expected: float
    mean_dice: float
    mean_absolute_error: float
    spearman: float


def dice_agreement(rows: Sequence[CaseScores]) -> DiceAgreement:
    """How far the expected Dice of an image can be taken at its word."""
    pairs = np.array([(row.expected_dice, row.dice) for row in rows]).reshape(-1, 2)
    expected, dice = pairs[~np.isnan(pairs).any(axis=1)].T
    if len(dice) == 0:
        nan = float("nan")
        return DiceAgreement(0, nan, nan, nan, nan)
    return DiceAgreement(
        images=len(dice),
        mean_expected=float(expected.mean()),
        mean_dice=float(dice.mean()),
        mean_absolute_error=float(np.abs(expected - dice).mean()),
        spearman=spearman(expected, dice),
    )


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Correlation of the ranks; equal values share their mean rank. nan where one is constant."""
    ranks = []
    for values in (first, second):
        _, group, size = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(size) - (size - 1) / 2)[group])
    centred = [one - one.mean() for one in ranks]
    norm = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return float(centred[0] @ centred[1]) / norm if norm else float("nan")
