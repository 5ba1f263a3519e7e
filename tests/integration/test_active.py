"""`segconf query` and `segconf active` as a user types them, on tiny synthetic dermoscopy."""

import csv
import json
import statistics

import numpy as np
import pytest
from PIL import Image
from torch import nn

from segconf.active.simulation import Simulation, simulate
from segconf.active.simulation_results import Point, means
from segconf.errors import ConfigError, DataError
from segconf.synthetic.generation import DemoParameters, write_demo_dataset
from segconf.training.epoch import TrainingListener
from tests.conftest import write_folder
from tests.training_runs import settings, train_tiny, use_network


class TinyEncoderNetwork(nn.Module):
    """Two convolutions, the first of which is the encoder."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.encoder.register_forward_hook(lambda _module, inputs, output: [*inputs, output])
        self.last = nn.Conv2d(6, 2, 3, padding=1)

    def forward(self, images):
        return self.last(self.encoder(images)[-1])


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    use_network(monkeypatch, TinyEncoderNetwork)
    monkeypatch.setattr("segconf.evaluation.report.risk_coverage_plot", lambda *_: None)
    monkeypatch.setattr("segconf.evaluation.report.reliability_diagram", lambda *_: None)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("active") / "demo"
    write_demo_dataset(folder, DemoParameters(training=11, validation=3, test=3, size=(32, 32)))
    return folder


def plan(demo, **changes):
    values = {"strategies": ("confidence", "coreset"), "rounds": 2, "budget": 2, "start": 3}
    config = settings(data__labeled=None, training__epochs=2, training__validate_every=2)
    return Simulation(
        **{"dataset": "demo", "data": demo, "config": config, "seeds": 1} | values | changes
    )


class Counting(TrainingListener):
    """Counts epochs, and stops in the middle of one of them as Ctrl-C does."""

    def __init__(self, stop_after=None):
        self.started, self.epochs, self._stop_after = 0, 0, stop_after

    def on_start(self, folder, epoch, epochs):  # noqa: ARG002
        self.started += 1

    def on_step(self, step, steps, terms):  # noqa: ARG002
        if self.epochs == self._stop_after:
            raise KeyboardInterrupt

    def on_epoch(self, summary):  # noqa: ARG002
        self.epochs += 1


def labeled(run):
    return set(json.loads((run / "split.json").read_text())["labeled"])


def test_interrupted_and_resumed_is_the_same_simulation(demo, tmp_path):
    whole, listener = tmp_path / "whole", Counting()
    counts = []
    points = simulate(
        plan(demo), whole, listener=listener, on_point=lambda _, *count: counts.append(count)
    )
    assert listener.epochs == 2 * 5  # two strategies of two rounds, and the start they share
    assert counts == [(number, 5) for number in range(1, 6)]
    assert [(p.strategy, p.round, p.labels) for p in points] == [
        (strategy, number, 3 + 2 * number)
        for strategy in ("confidence", "coreset")
        for number in range(3)
    ]
    assert points[0].scores == points[3].scores

    parts, trained = tmp_path / "parts", 0
    for stop_after in (1, 4):  # in the start, and in the middle of the second training after it
        listener = Counting(stop_after)
        with pytest.raises(KeyboardInterrupt):
            simulate(plan(demo), parts, listener=listener)
        trained += listener.epochs
    listener = Counting()
    assert simulate(plan(demo), parts, listener=listener) == points
    assert trained + listener.epochs == 10
    assert (parts / "active.csv").read_bytes() == (whole / "active.csv").read_bytes()

    runs = [parts / "seed0" / name for name in ("start", "confidence/round1", "confidence/round2")]
    sets = [labeled(run) for run in runs]
    assert [len(ids) for ids in sets] == [3, 5, 7]
    assert sets[0] < sets[1] < sets[2]
    with (runs[1].with_suffix(".csv")).open(newline="") as file:
        assert {row["id"] for row in csv.DictReader(file)} == sets[1] - sets[0]
    for point, run in zip(points, runs, strict=False):
        scores = json.loads((run / "evaluation/test/metrics.json").read_text())["metrics"]["all"]
        assert point.scores == {name: scores["strict"][name] for name in ("miou", "aurc")}

    again = Counting()
    extended = simulate(plan(demo, strategies=("random",), rounds=1), parts, listener=again)
    assert (again.started, again.epochs) == (1, 2)  # the start is there already
    assert [point.strategy for point in extended] == ["random", "random"]
    with pytest.raises(ConfigError, match=r"budget was 2, now 1"):
        simulate(plan(demo, budget=1), parts)
    other = settings(data__labeled=None, training__epochs=3, training__validate_every=2)
    with pytest.raises(ConfigError, match=r"training.epochs was 2, now 3"):
        simulate(plan(demo, config=other), parts)
    with Image.open(parts / "active.png") as picture:
        assert picture.size == (1620, 630)


def test_means_over_seeds():
    scores = {0: 0.5, 1: 0.7, 2: 0.9}
    points = [
        Point("random", seed, 1, 20, {"miou": miou, "aurc": 0.01}) for seed, miou in scores.items()
    ]
    points.append(Point("entropy", 0, 1, 20, {"miou": 0.8, "aurc": 0.02}))
    found = {(mean.strategy, mean.metric): mean for mean in means(points)}
    assert found["random", "miou"].mean == pytest.approx(0.7)
    assert found["random", "miou"].std == pytest.approx(statistics.stdev(scores.values()))
    assert found["random", "miou"].cell() == "0.700 ± 0.200"
    assert found["entropy", "aurc"].cell() == "20.00"  # in 10^-3; one seed has no spread


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rounds": 0}, "rounds = 0: expected a number from 1"),
        ({"seeds": 0}, "seeds = 0"),
        ({"start": 8}, r"12 labels, but .* has 11 training images"),
        ({"strategies": ("consistency",), "config": settings(training__method="softmax")},
         "the method softmax keeps no history of unlabeled images"),
    ],
)  # fmt: skip
def test_plans_that_cannot_be_simulated(demo, tmp_path, changes, named):
    with pytest.raises(ConfigError, match=named):
        simulate(plan(demo, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_images_without_masks_cannot_be_revealed(tmp_path):
    root = write_folder(tmp_path / "discs", 8, masks=6)
    values = Simulation(str(root), None, settings(), ("random",), 1, 1, 1, 1)
    with pytest.raises(DataError, match="2 training images have no mask, such as case_006"):
        simulate(values, tmp_path / "out")


SMALL = [
    *("--set", "data.size=[32, 32]", "--set", "model.encoder_weights=none"),
    *("--set", "training.batch_labeled=2", "--set", "training.batch_unlabeled=4"),
    *("--set", "training.epochs=1", "--set", "training.device=cpu"),
]


def test_a_round_by_hand(segconf, folder_dataset, tmp_path):
    segconf("train", folder_dataset, "--labeled", 3, "--out", "first", *SMALL)
    code, _, err = segconf("query", "first", "--budget", 2, "--device", "cpu")
    assert code == 0
    assert "segconf train DATASET --labels-from-query next.csv" in err
    with Image.open(tmp_path / "next.png") as sheet:
        assert np.asarray(sheet).shape[2] == 3
    code, _, _ = segconf(
        "train", folder_dataset, "--labels-from-query", "next.csv", "--out", "second", *SMALL
    )
    assert code == 0
    assert labeled(tmp_path / "first") < labeled(tmp_path / "second")
    assert len(labeled(tmp_path / "second")) == 5


def test_a_simulation_by_hand(segconf, demo, tmp_path):
    arguments = ("active", "isic", "--data", demo, "--rounds", 1, "--budget", 2, *SMALL)
    code, out, err = segconf(*arguments, "--strategies", "random, random", "--seeds", 2)
    assert code == 0
    assert "seed 1, random, round 1: 4 labels" in err
    lines = [line.split() for line in out.splitlines()]
    assert lines.count(["labels", "random"]) == 2
    assert [line[0] for line in lines if line[1:] and "±" in line][:4] == ["2", "4", "2", "4"]
    with (tmp_path / "active/active.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["seed"], row["labels"]) for row in rows] == [
        ("0", "2"), ("0", "4"), ("1", "2"), ("1", "4"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["query", "nothing", "--budget", "1"], "nothing: not a run folder"),
        (["query", "run", "--budget", "1", "--strategy", "magic"], "'magic' is not one of"),
        (["query", "run", "--budget", "1", "--out", "next.txt"], "ends in .csv"),
        (["query", "run", "--budget", "0"], "--budget 0"),
        (["query", "run", "--budget", "1", "--seed", "0"], "--seed 0: is for the strategy random"),
        (["compare", "run", "--split", "tets"], "'tets' is not one of"),
        (["data", "discs", "--keep-archives"], "--keep-archives: is about the download."),
        (
            ["active", "demo", "--strategies", "random,magic"],
            "--strategies magic: expected some of",
        ),
        (["active", "nowhere"], "nowhere: no such folder or data set"),
        (
            ["train", "discs", "--corrections", "maps"],
            "decisions.csv: no such file",
        ),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(segconf, folder_dataset, arguments, named):
    assert folder_dataset.name == "discs"
    code, out, err = segconf(*arguments)
    assert code == 2
    assert out == ""
    assert named in err
    assert "Traceback" not in err


def test_query_reads_a_run_of_several_epochs(folder_dataset, tmp_path, segconf):
    train_tiny(folder_dataset, tmp_path / "run", network=TinyEncoderNetwork, training__epochs=3)
    code, out, _ = segconf("query", "run", "--budget", 4, "--strategy", "consistency")
    assert code == 0
    assert "mean consistency" in out
