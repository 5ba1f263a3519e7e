"""Surrogates of confidence: snapshots replayed over the training images, and tables of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from segconf.checkpoints.weight_files import kept_snapshots, load_into
from segconf.checkpoints.weights import load_checkpoint
from segconf.conventions import IGNORE
from segconf.csv_tables import table_text
from segconf.data.cache import PixelCache, Pixels, Progress
from segconf.data.preprocessing import Preprocessing
from segconf.data.transforms import normalize
from segconf.devices import resolve_device
from segconf.errors import DataError, TrainingError
from segconf.files import make_folder, write_text
from segconf.history.predictions import PredictionHistory
from segconf.metrics.definitions import heading, scaled
from segconf.metrics.ranking_histogram import RankingHistogram
from segconf.metrics.selective import aurc, optimal_aurc, ranking_totals
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.models.encoders import encoder_normalization
from segconf.plots.curves import surrogate_curves
from segconf.runs.run_cases import training_cases
from segconf.runs.run_folder import RunFolder

SURROGATES = ("softmax", "consistency", "correctness", "L-count", "L-margin", "L-entropy")


BATCH = 16


FEWEST_SNAPSHOTS = 2


Replayed = tuple[Tensor, Tensor, Tensor]  # cases (B,), logits (B, K, H, W), masks (B, H, W)


@dataclass(frozen=True, slots=True)
class SurrogateScores:
    """How well each surrogate ranks the predictions of one snapshot, raw."""

    epoch: int  # epochs that were finished
    aurc: Mapping[str, float]
    eaurc: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RunSurrogates:
    """The scores of all snapshots of a run."""

    run: Path
    method: str
    images: int
    scores: tuple[SurrogateScores, ...]

    @property
    def last(self) -> SurrogateScores:
        """The scores after the last snapshot."""
        return self.scores[-1]


class SurrogateReplay:
    """Predictions of successive snapshots, and how well each surrogate of confidence ranks them.

    Correct is a pixel whose present prediction equals the mask; the present prediction belongs to
    the history. Beside the softmax confidence (by its log-odds), consistency and correctness there
    are the label frequencies (App. A.8 of the paper), with ``r_y`` how often y was predicted:
    L-count ``max r_y``, L-margin ``r_(1) - r_(2)``, and L-entropy, the negative entropy of
    ``r / sum r``. With two classes these three order pixels in the same way. Tied pixels share the
    expected risk: after the first snapshot all but softmax and correctness are tied everywhere.
    """

    def __init__(self, images: int, size: tuple[int, int], *, classes: int, snapshots: int) -> None:
        """Start with an empty history of images on a grid, all of which have masks."""
        self._classes = classes
        self._seen = 0
        self._history = PredictionHistory(
            images, size, labeled=range(images), epochs=snapshots, count_classes=classes
        )

    def replay(self, batches: Iterable[Replayed], *, epoch: int) -> SurrogateScores:
        """Record and score what one snapshot says about every image.

        Args:
            batches: every image once.
            epoch: number of finished epochs; more than in the call before.
        """
        metrics = ConfidenceMetrics(num_classes=self._classes)
        borders = np.empty(0, np.float32)
        ranked = {name: RankingHistogram(borders) for name in SURROGATES if name != "softmax"}
        self._seen += 1
        for cases, logits, masks in batches:
            prediction = logits.argmax(dim=1)  # (B, H, W)
            self._history.record(cases, prediction, epoch=epoch, masks=masks)
            metrics.update(logits, masks)
            valid = masks != IGNORE  # (B, H, W)
            wrong = (prediction != masks)[valid]  # (N,)
            for name, values in self._values(cases).items():
                ranked[name].add(values[valid].float(), wrong)
        return _scores(epoch, metrics, ranked)

    def _values(self, cases: Tensor) -> dict[str, Tensor]:
        """Surrogates (B, H, W), not negative, high = confident."""
        frequencies = self._history.frequencies(cases)  # (B, K, H, W)
        # Back to whole counts: frequencies that differ by rounding alone must be tied.
        counts = (frequencies * self._seen).round().sort(dim=1, descending=True).values
        ordered = counts.double() / self._seen  # (B, K, H, W), the most frequent class first
        margin = (counts[:, 0] - counts[:, 1]) / self._seen
        entropy = torch.special.entr(ordered).sum(dim=1)  # (B, H, W)
        return {
            "consistency": self._history.consistency(cases),
            "correctness": self._history.correctness(cases),
            "L-count": ordered[:, 0],
            "L-margin": margin,
            "L-entropy": (np.log(self._classes) - entropy).clamp_min(0),
        }


def _scores(
    epoch: int, metrics: ConfidenceMetrics, ranked: Mapping[str, RankingHistogram]
) -> SurrogateScores:
    correct = int(np.trace(metrics.confusion))
    wrong = metrics.pixels - correct
    best = float(optimal_aurc(np.array(correct), np.array(wrong)))
    values = {"softmax": metrics.compute()["aurc"]}
    for name, histogram in ranked.items():
        values[name] = float(aurc(ranking_totals(histogram.groups(), correct, wrong)))
    return SurrogateScores(epoch, values, {name: value - best for name, value in values.items()})


def evaluate_surrogates(
    folder: Path,
    *,
    data: Path | None = None,
    device: str = "auto",
    on_progress: Progress | None = None,
) -> RunSurrogates:
    """Replay the snapshots of a run over those of its training images that have a mask or label.

    Those that were hidden from the training, because their images were used as unlabeled, are read.

    Args:
        folder: the run; it must have kept snapshots.
        data: where its data set lies now; where it lay during the training when not given.
        device: auto, cpu, cuda, cuda:N or mps.
        on_progress: is told what is done, how many, and of how many.
    """
    run = RunFolder(folder)
    config, run_data = run.config(), run.data()
    snapshots = kept_snapshots(folder)
    if len(snapshots) < FEWEST_SNAPSHOTS:
        raise TrainingError(
            f"{folder}: keeps {len(snapshots)} snapshots, at least {FEWEST_SNAPSHOTS} are needed. "
            f"Train it again with training.snapshots = N, such as {config.training.epochs}."
        )
    root, cases = training_cases(config, run_data, data)
    cases = [case for case in cases if case.is_labeled]
    if not cases:
        raise DataError(f"{root}: none of the training images of {folder} has a mask or label.")
    cache = PixelCache(root, Preprocessing.of(config), on_progress=on_progress)
    images = cache.images(cases, label="training")
    masks = cache.masks(cases, label="training")
    network = load_checkpoint(folder, device=resolve_device(device)).model
    mean, std = encoder_normalization(config.model.encoder, config.model.channels)
    source = _Source(images, masks, mean, std, config.model.classes)
    replay = SurrogateReplay(
        len(cases), config.output_size, classes=config.model.classes, snapshots=len(snapshots)
    )
    found = []
    for number, (epoch, file) in enumerate(snapshots.items()):
        load_into(network, file)
        batches = source.batches(network, on_progress, number, len(snapshots))
        found.append(replay.replay(batches, epoch=epoch))
    return RunSurrogates(folder, config.training.method, len(cases), tuple(found))


@dataclass(frozen=True, slots=True)
class _Source:
    """Training images and masks on the grid of the network."""

    images: Pixels  # (N, H, W, C)
    masks: Pixels  # (N, H, W)
    mean: Sequence[float]
    std: Sequence[float]
    classes: int

    def batches(
        self, network: nn.Module, on_progress: Progress | None, done: int, snapshots: int
    ) -> Iterator[Replayed]:
        """What the network says about every image; `done` of all snapshots are finished."""
        device = next(network.parameters()).device
        count = len(self.images)
        for start in range(0, count, BATCH):
            rows = slice(start, min(start + BATCH, count))
            pixels = normalize(np.asarray(self.images[rows]), mean=self.mean, std=self.std)
            with torch.inference_mode():
                logits = network(pixels.to(device))[:, : self.classes].float().cpu()  # (B, K, H, W)
            masks = torch.from_numpy(np.array(self.masks[rows]))  # (B, H, W)
            yield torch.arange(rows.start, rows.stop), logits, masks
            if on_progress is not None:
                on_progress("images x snapshots", done * count + rows.stop, snapshots * count)


GAP_METRICS = ("aurc", "eaurc")
FILES = ("surrogates.csv", "surrogates.md", "surrogates.png")


def gap_columns() -> list[str]:
    """Titles of the columns of `gap_rows`."""
    ranked = [
        f"{heading(metric)} {part}"
        for metric in GAP_METRICS
        for part in ("softmax", "consistency", "gap")
    ]
    return ["run", "method", "epoch", *ranked]


def gap_rows(runs: Sequence[RunSurrogates]) -> list[list[str]]:
    """One row per run, as in Table 1 of the paper: how far softmax is from consistency at the end.

    A ranking loss that is met makes softmax rank pixels like their consistency: the gap closes.
    """
    rows = []
    for run in runs:
        cells = [run.run.name, run.method, str(run.last.epoch)]
        for metric in GAP_METRICS:
            values = run.last.aurc if metric == "aurc" else run.last.eaurc
            softmax, consistency = values["softmax"], values["consistency"]
            numbers = (softmax, consistency, abs(softmax - consistency))
            cells += [scaled(number, metric) for number in numbers]
        rows.append(cells)
    return rows


def as_markdown(runs: Sequence[RunSurrogates]) -> str:
    """The table of gaps."""
    columns = gap_columns()
    lines = [" | ".join(columns), "|".join(["---", "---", *(["---:"] * (len(columns) - 2))])]
    lines += [" | ".join(row) for row in gap_rows(runs)]
    return "".join(f"| {line} |\n" for line in lines)


def as_csv(runs: Sequence[RunSurrogates]) -> str:
    """Raw scores: one line per run, snapshot and surrogate."""
    rows = [
        [run.run.name, run.method, run.images, one.epoch, name, one.aurc[name], one.eaurc[name]]
        for run in runs
        for one in run.scores
        for name in SURROGATES
    ]
    columns = ["run", "method", "images", "epoch", "surrogate", "aurc", "eaurc"]
    return table_text(columns, rows)


def write_surrogates(runs: Sequence[RunSurrogates], folder: Path) -> None:
    """Write `surrogates.csv`, `surrogates.md` and `surrogates.png`."""
    make_folder(folder)
    write_text(folder / "surrogates.csv", as_csv(runs))
    write_text(folder / "surrogates.md", as_markdown(runs))
    curves = {
        run.run.name: {
            name: [(s.epoch, s.aurc[name], s.eaurc[name]) for s in run.scores]
            for name in SURROGATES
        }
        for run in runs
    }
    surrogate_curves(curves, folder / "surrogates.png")
