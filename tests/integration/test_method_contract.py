"""What every method promises, whichever package it comes from: train, resume, measure, predict."""

import csv
import hashlib
import json
import math

import pytest
import torch
from safetensors.torch import load_file

from segconf.checkpoints.weight_files import kept_snapshots
from segconf.comparison.compare import compare
from segconf.config.loading import load_config
from segconf.errors import ConfigError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.methods.method import Method, methods
from segconf.metrics.definitions import METRICS
from segconf.registry import METHODS
from segconf.runs.run_folder import RunFolder
from segconf.training.train import train
from tests.conftest import write_classes, write_folder
from tests.training_runs import Interrupter, contents, differences

SCORES = ("aurc", "ece", "nll")
REFUSED = {"aes": {"training.snapshots": 0}, "aleatoric": {"loss.segmentation": "dice"}}
"""Settings that a method cannot work with."""
every_method = pytest.mark.parametrize("name", METHODS.names())
TASKS = {
    "segmentation": {"data.size": [32, 32], "data.labeled": 4, "model.encoder": "tu-test_resnet"},
    "classification": {
        "data.task": "classification",
        "data.size": [8, 8],
        "data.labeled": 6,
        "model.encoder": "preact_resnet8",
    },
}


def config_of(name, task="segmentation", **changes):
    flags = {
        **TASKS[task],
        "model.encoder_weights": "none",
        "loss.noise_samples": 3,
        "training.method": name,
        "training.epochs": 3,
        "training.batch_labeled": 2,
        "training.batch_unlabeled": 2,
        "training.learning_rate": 0.003,
        "training.members": 2,
        "training.device": "cpu",
        "inference.passes": 3,
    }
    if methods.get(name).default_snapshots:
        flags["training.snapshots"] = 2
    return load_config(flags=flags | changes)


class Runs:
    """Runs of the methods on the same images, trained and evaluated when first asked for."""

    def __init__(self, root, task):
        self.root = root
        self.task = task
        self._evaluated = set()
        if task == "classification":
            self.data = write_classes(root / "colours", {"train": 4, "val": 2, "test": 2})
            self.images = self.data / "test"
            # Labels that contradict the pictures: no network is right, or wrong, everywhere.
            for one, other in (("blue", "red"), ("red", "green")):
                picture = (self.images / other / "000.png").read_bytes()
                (self.images / one / "001.png").write_bytes(picture)
            return
        self.data = write_folder(root / "discs", 8)
        write_folder(self.data / "val", 4, first=100)
        write_folder(self.data / "test", 2, first=200)
        self.images = self.data / "test/images"

    def config(self, name):
        return config_of(name, self.task)

    def train(self, name, folder, **options):
        return train(self.config(name), dataset=str(self.data), folder=folder, **options)

    def trained(self, name):
        folder = self.root / name
        if not folder.exists():
            self.train(name, folder)
        return folder

    def evaluated(self, name):
        folder = self.trained(name)
        if name not in self._evaluated:
            evaluate(folder, EvaluationOptions("test", device="cpu"))
            self._evaluated.add(name)
        return folder


@pytest.fixture(scope="module", params=TASKS)
def runs(tmp_path_factory, request):
    root = tmp_path_factory.mktemp("contract")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Runs(root, request.param)
    torch.set_num_threads(threads)


def scores_of(task):
    return ("miou" if task == "segmentation" else "accuracy", *SCORES)


def networks(run, name):
    """Folders of the networks of a run: itself, or its members."""
    config = config_of(name)
    members = methods.get(name).member_configs(config)
    return [folder.path for folder in RunFolder(run).members(len(members))] or [run]


def everything(run, name):
    """All that a run has computed, network by network, and what was fitted at its end."""
    found = {
        f"{number} {key}": value
        for number, folder in enumerate(networks(run, name))
        for key, value in contents(folder).items()
    }
    for folder in networks(run, name):
        for epoch, file in kept_snapshots(folder).items():
            found |= {f"snapshot {epoch} {key}": value for key, value in load_file(file).items()}
    fitted = [run / name for name in ("calibration.json", "ood.safetensors")]
    return found | {file.name: file.read_bytes() for file in fitted if file.exists()}


@every_method
def test_an_interrupted_run_equals_an_uninterrupted_one(runs, name, tmp_path):
    whole, run = runs.trained(name), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        runs.train(name, run, listener=Interrupter(1, 1))
    runs.train(name, run, resume=True)
    expected = everything(whole, name)
    assert differences(expected, everything(run, name)) == []
    assert "calibration.json" in expected
    assert any("history/" in key for key in expected) == methods.get(name).uses_history
    assert any("snapshot" in key for key in expected) == (methods.get(name).default_snapshots > 0)


@every_method
def test_all_metrics_are_measured(runs, name):
    run = runs.evaluated(name)
    content = json.loads((run / "evaluation/test/metrics.json").read_text())
    assert content["method"] == name
    assert all(math.isfinite(content["metrics"]["all"]["strict"][name]) for name in METRICS)
    strata = {"boundary", "foreground"} if runs.task == "segmentation" else set()
    assert set(content["metrics"]) == {"all", *strata}
    for stratum in strata:  # where a value may be undefined
        assert set(METRICS) <= set(content["metrics"][stratum]["strict"])
    assert set(METRICS) <= set(content["intervals"])


@every_method
def test_the_passes_are_those_it_announces(runs, name):
    run = runs.evaluated(name)
    model = load_model(run, device="cpu")
    content = json.loads((run / "evaluation/test/metrics.json").read_text())
    announced = methods.get(name).passes(config_of(name))
    assert announced == model.predictor.count == content["inference_passes"] >= 1
    assert announced == len(list(model.predictor(torch.zeros(1, 3, *runs.config(name).data.size))))


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@every_method
def test_predicting_twice_gives_the_same_maps(runs, name, tmp_path):
    sources = find_images([runs.images])
    for folder in ("one", "two"):
        model = load_model(runs.trained(name), device="cpu")
        report = predict(model, sources, tmp_path / folder)
        assert len(report.rows) == len(sources.items)
        assert not report.broken
    one, two = digests(tmp_path / "one"), digests(tmp_path / "two")
    written = {"masks/case_200.png", "confidence/case_200.png", "cases.csv"}
    assert (written if runs.task == "segmentation" else {"predictions.csv"}) <= set(one)
    assert one == two
    record = json.loads((tmp_path / "one/run.json").read_text())["model"]
    assert (record["method"], record["passes"]) == (name, model.predictor.count)


@every_method
def test_it_can_be_compared_with_another_method(runs, name):
    other = "softmax" if name != "softmax" else "consistency"
    found = compare([runs.evaluated(name), runs.evaluated(other)], baseline=other)
    assert len(found.rows) == 2
    (row,) = [row for row in found.rows if row.difference]
    assert row.name.startswith(name)
    assert all(math.isfinite(row.values[metric]) for metric in scores_of(runs.task))
    assert ("accuracy" in found.metrics) == (runs.task == "classification")
    assert ("miou" in found.metrics) == (runs.task == "segmentation")


@every_method
def test_terms_weights_and_the_table_of_epochs_agree(runs, name):
    method, config, scores = methods.get(name), runs.config(name), scores_of(runs.task)
    assert tuple(method.weights(config.loss)) == tuple(method.terms)
    assert all(weight >= 0 for weight in method.weights(config.loss).values())
    for folder in networks(runs.trained(name), name):
        with (folder / "epochs.csv").open(newline="") as file:
            header, *rows = csv.reader(file)
        ema = [f"ema_{score}" for score in scores]
        assert header == ["epoch", "steps", *method.terms, *scores, *ema]
        assert len(rows) == config.training.epochs
        terms = [float(value) for row in rows for value in row[2 : 2 + len(method.terms)]]
        assert all(math.isfinite(value) for value in terms)


@every_method
def test_it_is_described_in_one_sentence(name):
    method = methods.get(name)
    assert isinstance(method, Method)
    assert method.name == name
    summary = method.summary()
    assert summary[0].isupper()
    assert 10 < len(summary) < 100
    assert "\n" not in summary
    assert not summary.endswith(".")


@every_method
def test_it_accepts_what_it_can_do_and_refuses_what_it_cannot(runs, name, tmp_path):
    method = methods.get(name)
    method.check(config_of(name))
    if name not in REFUSED:
        return
    config = config_of(name, runs.task, **REFUSED[name])
    for key, value in REFUSED[name].items():
        with pytest.raises(ConfigError, match=rf"{key} = {value}: the method {name} "):
            train(config, dataset=str(runs.data), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
