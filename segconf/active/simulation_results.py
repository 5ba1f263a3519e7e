"""Results of a simulation: points, their means over seeds, a table and a figure."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segconf.csv_tables import table_text
from segconf.files import write_text
from segconf.metrics.definitions import METRICS as DECLARED
from segconf.metrics.definitions import heading, scaled
from segconf.plots.training_curves import LabelCurve, label_curves


@dataclass(frozen=True, slots=True)
class Point:
    """Test scores of one training; round 0 is the start, which all strategies share.

    Attributes:
        strategy: that chose the labels.
        seed: of the training.
        round: of query and training.
        labels: how many there were.
        scores: raw, by metric: mIoU of masks or accuracy of labels, and AURC.
    """

    strategy: str
    seed: int
    round: int
    labels: int
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean and standard deviation over seeds (nan for a single one) of a metric."""

    strategy: str
    labels: int
    metric: str
    mean: float
    std: float

    def cell(self) -> str:
        """As tables show it, in the scale of the metric."""
        mean = scaled(self.mean, self.metric)
        return mean if math.isnan(self.std) else f"{mean} ± {scaled(self.std, self.metric)}"


def means(points: Sequence[Point]) -> list[Mean]:
    """Over the seeds, by strategy, number of labels and metric, in the order of the points."""
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in points:
        groups.setdefault((point.strategy, point.labels), []).append(point)
    found: list[Mean] = []
    for metric in points[0].scores if points else ():
        for (strategy, labels), members in groups.items():
            values = [point.scores[metric] for point in members]
            std = statistics.stdev(values) if len(values) > 1 else math.nan
            found.append(Mean(strategy, labels, metric, statistics.fmean(values), std))
    return found


def write_results(points: Sequence[Point], folder: Path) -> None:
    """Write active.csv (raw values of every training) and active.png."""
    metrics = list(points[0].scores)
    rows = [[p.strategy, p.seed, p.round, p.labels, *p.scores.values()] for p in points]
    columns = ["strategy", "seed", "round", "labels", *metrics]
    write_text(folder / "active.csv", table_text(columns, rows))
    found = means(points)
    panels = {_axis(metric): _curves(found, metric) for metric in metrics}
    label_curves(panels, folder / "active.png")


def _axis(metric: str) -> str:
    return f"test {heading(metric).replace('^3', '$^3$')} ({DECLARED[metric].better} is better)"


def _curves(found: Sequence[Mean], metric: str) -> dict[str, LabelCurve]:
    scale = DECLARED[metric].scale
    curves: dict[str, LabelCurve] = {}
    for strategy in dict.fromkeys(mean.strategy for mean in found):
        own = [m for m in found if m.strategy == strategy and m.metric == metric]
        own.sort(key=lambda mean: mean.labels)
        curves[strategy] = LabelCurve(
            [mean.labels for mean in own],
            [scale * mean.mean for mean in own],
            [scale * mean.std for mean in own],
        )
    return curves
