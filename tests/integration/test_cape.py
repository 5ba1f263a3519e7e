"""CaPE: when frequencies are the targets, which ones, and what they cost; resumed in between."""

import csv
import math

import pytest
import torch

from segconf.config.schema import LossConfig
from segconf.data.training_set import Batch
from segconf.errors import TrainingError
from segconf.losses.empirical_targets import CELLS, cell_counts
from segconf.methods.cape import CalibratedEstimation, calibration_start
from segconf.methods.method import EpochStart, LossContext, StepOutputs
from segconf.processes import ProcessGroup
from segconf.runs.epochs import EpochSummary, Scores
from tests.references import calibration_losses as reference
from tests.training_runs import Interrupter, contents, differences, settings, train_tiny

CHANGES = {"training__method": "cape", "training__epochs": 6, "loss__cape_every": 2}


def summaries(*nlls):
    return [
        EpochSummary(epoch, 1, {}, None if nll is None else Scores(0.5, 0.1, 0.1, nll))
        for epoch, nll in enumerate(nlls)
    ]


@pytest.mark.parametrize(
    ("nlls", "expected"),
    [
        ((), 10),
        ((0.9, 0.8, 0.7, 0.6), 10),
        ((0.9, 0.8, 0.8), 10),
        ((0.9, 0.8, 0.8, 0.85), 4),
        ((0.9, 0.8, None, 0.8, None, 0.85), 6),
        ((0.9, 0.8, 0.85, 0.7, 0.75, 0.7, 0.6), 6),
        ((0.9,) * 20, 3),
        ((*range(14, 0, -1), 2, 2), 10),
    ],
)
def test_the_first_phase_ends_early_or_half_way(nlls, expected):
    assert calibration_start(summaries(*nlls), patience=2, epochs=20) == expected


def pixels(seed, count=2):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, 2, 3, 4, generator=generator, dtype=torch.float64)
    masks = torch.randint(0, 2, (count, 3, 4), generator=generator)
    masks[0, 0, :2] = 255
    return logits, masks


def epoch_start(epoch, group, labeled, **changes):
    config = settings(**CHANGES, **changes)
    return EpochStart(epoch, config, [], lambda: iter(labeled), group)


def test_frequencies_are_measured_in_one_of_two_epochs():
    def measured(epoch):
        start = epoch_start(epoch, ProcessGroup(), [pixels(0)])
        return CalibratedEstimation().prepare_epoch(start) is not None

    assert [measured(epoch) for epoch in range(6)] == [False, False, False, True, False, True]


class OtherProcess(ProcessGroup):
    """The other process has counted these."""

    def __init__(self, counts):
        object.__setattr__(self, "counts", counts)

    def total(self, value):
        return value + self.counts


@pytest.mark.parametrize("targets", ["kernel", "bins"])
def test_two_processes_measure_the_frequencies_of_one(targets):
    method, changes = CalibratedEstimation(), {"loss__cape_targets": targets}
    alone = epoch_start(3, ProcessGroup(), [pixels(0), pixels(1)], **changes)
    one_of_two = epoch_start(3, OtherProcess(cell_counts(*pixels(1))), [pixels(0)], **changes)
    expected = method.prepare_epoch(alone)
    assert expected.shape == (2, CELLS)
    assert torch.equal(method.prepare_epoch(one_of_two), expected)


def test_the_calibration_term_is_the_cross_entropy_to_the_frequencies():
    logits, masks = pixels(2)
    frequencies = CalibratedEstimation().prepare_epoch(
        epoch_start(3, ProcessGroup(), [pixels(0), pixels(1)])
    )
    context = LossContext(
        LossConfig(), None, ProcessGroup(), torch.Generator(), torch.device("cpu"), frequencies
    )
    views = Batch(torch.arange(2), logits, masks)
    step = StepOutputs(logits, masks, views, None, None, None)
    terms = CalibratedEstimation().loss(step, context)
    assert terms["supervised"].item() == 0

    samples = {k: [] for k in range(2)}
    for seed in range(2):
        earlier, truth = pixels(seed)
        for k in range(2):
            said = earlier.softmax(dim=1)[:, k].flatten().tolist()
            labels = truth.flatten().tolist()
            samples[k] += [(p, int(y == k)) for p, y in zip(said, labels, strict=True) if y != 255]
    costs = []
    probabilities = logits.softmax(dim=1)
    for image, row, column in (masks != 255).nonzero().tolist():
        said = probabilities[image, :, row, column].tolist()
        targets = [reference.kernel_frequency(said[k], samples[k], 0.05) for k in range(2)]
        parts = [t / sum(targets) * math.log(p) for t, p in zip(targets, said, strict=True)]
        costs.append(-sum(parts))
    assert terms["calibration"].item() == pytest.approx(sum(costs) / len(costs))


@pytest.fixture(scope="module")
def reference_run(tmp_path_factory):
    from tests.conftest import write_folder

    root = tmp_path_factory.mktemp("cape")
    data = write_folder(root / "discs", 8)
    write_folder(data / "val", 4, first=100)
    train_tiny(data, root / "run", **CHANGES)
    return data, root / "run"


def test_the_table_of_epochs_shows_which_targets_an_epoch_had(reference_run):
    _, run = reference_run
    with (run / "epochs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    used = [(float(row["supervised"]) > 0, float(row["calibration"]) > 0) for row in rows]
    first = next(number for number, (_, calibrated) in enumerate(used) if calibrated)
    assert first <= 3
    for number, terms in enumerate(used):
        calibrated = number >= first and (number - first) % 2 == 0
        assert terms == (not calibrated, calibrated)


@pytest.mark.parametrize("epoch", [3, 4, 5])
def test_a_run_that_stops_in_the_second_phase_goes_on_as_if_it_had_not(
    reference_run, tmp_path, epoch
):
    data, whole = reference_run
    with pytest.raises(KeyboardInterrupt):
        train_tiny(data, tmp_path / "run", listener=Interrupter(epoch, 2), **CHANGES)
    train_tiny(data, tmp_path / "run", resume=True, **CHANGES)
    assert differences(contents(whole), contents(tmp_path / "run")) == []


def test_more_epochs_than_planned_are_refused(reference_run, tmp_path):
    data, _ = reference_run
    train_tiny(data, tmp_path / "run", **(CHANGES | {"training__epochs": 2}))
    with pytest.raises(TrainingError, match=r"training.epochs decides when the calibration"):
        train_tiny(data, tmp_path / "run", resume=True, **CHANGES)
