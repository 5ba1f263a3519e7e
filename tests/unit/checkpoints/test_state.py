"""The EMA of the weights, the table of epochs, the best epoch, and TensorBoard if it is there."""

import csv
import sys
from types import ModuleType
from typing import ClassVar

import pytest
import torch
from torch import nn

from segconf.checkpoints.state import TrainingState, build_ema
from segconf.runs.epochs import (
    EpochSummary,
    Scores,
    as_plain,
    from_plain,
    open_events,
    write_epochs,
)


def scores(miou):
    return Scores(miou=miou, aurc=0.01, ece=0.02, nll=0.3)


def summary(epoch, miou=None, ema=None):
    return EpochSummary(
        epoch,
        3,
        {"supervised": 0.5, "correctness": 0.25, "consistency": 0.125},
        None if miou is None else scores(miou),
        None if ema is None else scores(ema),
    )


def state(summaries):
    return TrainingState(None, None, None, None, summaries=summaries)


def test_the_ema_follows_by_hand():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    ema = build_ema(model, 0.15)
    seen = []
    for value in (2.0, 4.0, 8.0):
        nn.init.constant_(model.weight, value)
        ema.update_parameters(model)
        seen.append(ema.module.weight.item())
    # Decay min(0.15, (1 + n) / (10 + n)): 1/10, then 2/11 and 3/12 are above 0.15.
    first = 0.1 * 1.0 + 0.9 * 2.0
    second = 0.15 * first + 0.85 * 4.0
    assert seen == pytest.approx([first, second, 0.15 * second + 0.85 * 8.0])
    assert model.weight.item() == 8.0


def test_statistics_are_averaged_and_counters_copied():
    model = nn.BatchNorm2d(1, momentum=1.0)
    ema = build_ema(model, 0.99)
    model(torch.tensor([1.0, 3.0]).view(2, 1, 1, 1))
    ema.update_parameters(model)
    # From 0 towards the mean 2, from 1 towards the unbiased variance 2, with decay 1/10.
    assert ema.module.running_mean.item() == pytest.approx(0.9 * 2.0)
    assert ema.module.running_var.item() == pytest.approx(0.1 * 1.0 + 0.9 * 2.0)
    assert ema.module.num_batches_tracked == 1
    assert not ema.module.training
    assert not any(parameter.requires_grad for parameter in ema.module.parameters())


@pytest.mark.parametrize("decay", [0.3, 0.999])
def test_the_ema_is_a_slow_loop_to_the_last_bit(decay):
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3))
    ema = build_ema(model, decay)
    slow = {name: value.clone() for name, value in model.state_dict().items()}
    for step in range(25):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator))
        model(torch.randn(2, 2, 5, 5, generator=generator))  # new statistics
        ema.update_parameters(model)
        now = min(decay, (1 + step) / (10 + step))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                slow[name] = torch.lerp(slow[name], value, 1 - now)
            else:
                slow[name] = value.clone()
    found = ema.module.state_dict()
    assert found.keys() == slow.keys()
    assert all(torch.equal(found[name], value) for name, value in slow.items())
    assert slow["1.num_batches_tracked"] == 25


def test_the_ema_goes_on_from_a_checkpoint(tmp_path):
    model = nn.Linear(2, 1)
    ema, other = build_ema(model, 0.9), build_ema(nn.Linear(2, 1), 0.9)
    for _ in range(3):
        nn.init.normal_(model.weight)
        ema.update_parameters(model)
    torch.save(ema.state_dict(), tmp_path / "ema")
    other.load_state_dict(torch.load(tmp_path / "ema", weights_only=True))
    nn.init.normal_(model.weight)
    for one in (ema, other):
        one.update_parameters(model)
    assert torch.equal(ema.module.weight, other.module.weight)


def test_the_best_epoch_is_the_first_with_the_highest_validation_miou():
    assert state([]).best_epoch is None
    assert state([summary(0), summary(1)]).best_epoch is None
    assert state([summary(0, 0.5), summary(1, 0.7), summary(2), summary(3, 0.7)]).best_epoch == 1


def test_the_ema_decides_where_there_is_one():
    assert state([summary(0, 0.9, 0.5), summary(1, 0.1, 0.6)]).best_epoch == 1


def test_the_table_leaves_out_what_was_not_measured(tmp_path):
    write_epochs(tmp_path / "epochs.csv", [summary(0), summary(1, 0.7), summary(2, 0.7, 0.8)])
    with (tmp_path / "epochs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["miou"] for row in rows] == ["", "0.7", "0.7"]
    assert [row["ema_miou"] for row in rows] == ["", "", "0.8"]
    assert rows[2] == rows[2] | {"epoch": "2", "steps": "3", "supervised": "0.5", "aurc": "0.01"}


@pytest.mark.parametrize("original", [summary(0), summary(1, 0.7), summary(2, 0.7, 0.8)])
def test_summaries_survive_a_checkpoint(original, tmp_path):
    torch.save(as_plain(original), tmp_path / "state")
    assert from_plain(torch.load(tmp_path / "state", weights_only=True)) == original


def test_without_tensorboard_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with open_events(tmp_path / "events", 0, enabled=True) as write:
        write(summary(0, 0.5))
    assert list(tmp_path.iterdir()) == []


class FakeWriter:
    written: ClassVar[list] = []

    def __init__(self, folder, purge_step):
        self.written.append((folder, purge_step))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.written.append("closed")

    def add_scalar(self, name, value, step):
        self.written.append((name, value, step))

    def flush(self):
        pass


@pytest.mark.parametrize("enabled", [True, False])
def test_curves_for_tensorboard_count_epochs_from_one(tmp_path, monkeypatch, enabled):
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = FakeWriter
    monkeypatch.setattr(FakeWriter, "written", [])
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with open_events(tmp_path / "events", 4, enabled=enabled) as write:
        write(summary(4, 0.5, 0.6))
    if not enabled:
        assert FakeWriter.written == []
        return
    assert FakeWriter.written[0] == (str(tmp_path / "events"), 5)
    assert FakeWriter.written[-1] == "closed"
    assert set(FakeWriter.written[1:-1]) == {
        ("loss/supervised", 0.5, 5),
        ("loss/correctness", 0.25, 5),
        ("loss/consistency", 0.125, 5),
        *((f"validation/{n}", v, 5) for n, v in (("miou", 0.5), ("aurc", 0.01))),
        *((f"validation/{n}", v, 5) for n, v in (("ece", 0.02), ("nll", 0.3))),
        *((f"validation_ema/{n}", v, 5) for n, v in (("miou", 0.6), ("aurc", 0.01))),
        *((f"validation_ema/{n}", v, 5) for n, v in (("ece", 0.02), ("nll", 0.3))),
    }
