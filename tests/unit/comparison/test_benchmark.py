"""Which runs a benchmark consists of, with which settings, and what is missing of each."""

import pytest
import torch

from segconf.comparison.benchmark import BenchmarkRequest, check_runs, plan_runs
from segconf.config.protocol import load_protocol, paper_protocol
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.splits import split_cases
from segconf.errors import ConfigError
from segconf.registry import METHODS
from segconf.runs.run_data import RunData
from segconf.runs.run_folder import RunFolder

PROTOCOL = """
methods:
  softmax:
    settings: {training.batch_labeled: 8, training.epochs: 3}
    labels:
      2: {training.epochs: 7}
      4: {training.epochs: 5}
  crl:
    settings: {training.epochs: 6}
"""


@pytest.fixture
def request_for(tmp_path, folder_dataset):
    protocol = tmp_path / "protocol.yaml"
    protocol.write_text(PROTOCOL)

    def request(**changes):
        values = {"labeled": (2, 4), "methods": ("softmax", "crl"), "seeds": 2}
        values |= {"protocol": protocol, "overrides": ("data.size=[32, 32]",)}
        return BenchmarkRequest(
            dataset=str(folder_dataset), out=tmp_path / "out", **(values | changes)
        )

    return request


def make(run, dataset, *, epochs, best=True, evaluated=(), stalled=""):
    """A run folder that has come so far."""
    split = split_cases(
        find_cases(dataset, options=FindOptions()),
        labeled=run.config.data.labeled,
        labeled_list=None,
        seed=0,
    )
    RunFolder(run.folder).create(run.config, RunData.of(dataset, None, split), torch.device("cpu"))
    lines = ["epoch,stalled", *(f"{epoch},{stalled}" for epoch in range(epochs))]
    (run.folder / "epochs.csv").write_text("\n".join(lines) + "\n")
    if best:
        (run.folder / "best.safetensors").touch()
    for name in evaluated:
        (run.folder / "evaluation" / name).mkdir(parents=True)
        (run.folder / "evaluation" / name / "metrics.json").touch()


def test_every_combination_is_a_run_with_its_own_settings(request_for):
    runs = plan_runs(request_for())
    assert [run.name for run in runs] == [
        f"{method}-{labels}-seed{seed}"
        for labels in (2, 4)
        for seed in (0, 1)
        for method in ("softmax", "crl")
    ]
    settings = {run.name: (run.config.data.labeled, run.config.training) for run in runs}
    labels, training = settings["softmax-4-seed1"]
    assert (labels, training.method, training.seed) == (4, "softmax", 1)
    assert (training.epochs, training.batch_labeled) == (5, 8)
    assert settings["softmax-2-seed0"][1].epochs == 7
    assert settings["crl-2-seed0"][1].epochs == 6
    assert settings["crl-2-seed0"][1].batch_labeled == 32  # the default: the protocol is silent


def test_later_sources_win(request_for, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("training: {epochs: 50, learning_rate: 0.5, method: consistency}")
    (run,) = plan_runs(
        request_for(
            config=config,
            labeled=(2,),
            methods=("softmax",),
            seeds=1,
            overrides=("training.batch_labeled=16",),
        )
    )
    training = run.config.training
    assert (training.learning_rate, training.epochs, training.batch_labeled) == (0.5, 7, 16)
    assert training.method == "softmax"


def test_lists_choose_the_labeled_images(request_for, tmp_path):
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "labeled_2.txt").write_text("one\ntwo\n")
    runs = plan_runs(request_for(labeled=(2,), labeled_lists=lists))
    assert [run.name for run in runs][:2] == ["softmax-2-seed0", "crl-2-seed0"]
    for run in runs:
        assert run.config.data.labeled_list == lists / "labeled_2.txt"
        assert run.config.data.labeled is None
    assert runs[0].config.training.epochs == 7  # settings of the protocol for two labels
    with pytest.raises(ConfigError, match=r"labeled_4\.txt: no such file"):
        plan_runs(request_for(labeled_lists=lists))
    (lists / "labeled_4.txt").write_text("one\ntwo\nthree\n")
    with pytest.raises(ConfigError, match=r"labeled_4\.txt: holds 3 ids, expected 4"):
        plan_runs(request_for(labeled_lists=lists))


def test_the_protocol_of_the_paper():
    protocol = paper_protocol("segmentation")
    # SPEC: baselines batch 64, 1500/700/300/200 epochs for 125/250/500/2000 labels.
    for labels, epochs in {125: 1500, 250: 700, 500: 300, 2000: 200}.items():
        for method in set(METHODS.names()) - {"consistency"}:
            assert protocol.settings_of(method, labels) == {
                "training.batch_labeled": 64,
                "training.epochs": epochs,
            }
        assert protocol.settings_of("consistency", labels) == {
            "training.batch_labeled": 32,
            "training.batch_unlabeled": 64,
            "training.epochs": 200,
        }
    with pytest.raises(ConfigError, match=r"softmax with 100 labels.*125, 250, 500, 2000"):
        protocol.settings_of("softmax", 100)
    with pytest.raises(ConfigError, match="softmax with all labels"):
        protocol.settings_of("softmax", None)
    # CIFAR: 300 epochs of 64 + 128; baselines batch 128, 2700/1200/600/300 epochs.
    protocol = paper_protocol("classification")
    for labels, epochs in {2500: 2700, 5000: 1200, 10000: 600, 50000: 300}.items():
        assert protocol.settings_of("softmax", labels) == {
            "training.batch_labeled": 128,
            "training.epochs": epochs,
        }
        assert protocol.settings_of("consistency", labels) == {
            "training.batch_labeled": 64,
            "training.batch_unlabeled": 128,
            "training.epochs": 300,
        }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("methods: {magic: {}}", "methods: magic is not one of aes, aleatoric"),
        ("methods: {softmax: {epochs: 3}}", "methods.softmax.epochs"),
        ("methods: {softmax: {labels: {many: {}}}}", "methods.softmax.labels.many"),
        ("speed: 3", "speed"),
        ("- softmax", "expected sections"),
    ],
)
def test_mistakes_of_a_protocol(tmp_path, text, named):
    path = tmp_path / "protocol.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as raised:
        load_protocol(path)
    assert str(raised.value).startswith(f"{path}: ")


def test_all_mistakes_of_a_plan_at_once(request_for, tmp_path):
    path = tmp_path / "protocol.yaml"
    path.write_text(
        "methods: {softmax: {settings: {training.epoch: 3}}, crl: {settings: {loss.pairs: -1}}}"
    )
    with pytest.raises(ConfigError) as raised:
        plan_runs(request_for())
    assert str(raised.value).splitlines() == [
        f"{path}: training.epoch: unknown key; did you mean training.epochs?",
        f"{path}: loss.pairs = -1: expected all or a whole number >= 1",
    ]
    for change, named in (
        ({"methods": ("magic",)}, "methods = magic"),
        ({"methods": ("crl", "crl")}, "methods: "),
        ({"labeled": ()}, "labeled: "),
        ({"seeds": 0}, "seeds = 0"),
    ):
        with pytest.raises(ConfigError, match=named):
            plan_runs(request_for(**change))


@pytest.mark.parametrize(
    ("existing", "missing"),
    [
        (None, ("training", "evaluating")),
        ({"epochs": 6, "evaluated": ["test"]}, ("training", "evaluating")),
        ({"epochs": 7, "best": False}, ("training", "evaluating")),
        ({"epochs": 7}, ("evaluating",)),
        ({"epochs": 7, "evaluated": ["val"]}, ("evaluating",)),
        ({"epochs": 7, "evaluated": ["test"]}, ()),
    ],
)
def test_what_is_missing(request_for, folder_dataset, existing, missing):
    temperature = ("calibrating", "evaluating calibrated")
    run, calibrated = (
        plan_runs(request_for(methods=("softmax",), labeled=(2,), seeds=1, calibrate=asked))[0]
        for asked in (False, True)
    )
    assert not run.has_begun
    if existing is not None:
        make(run, str(folder_dataset), **existing)
        assert run.has_begun
        assert run.finished_epochs == existing["epochs"]
    assert run.epochs == 7
    assert run.missing_steps == missing
    assert calibrated.missing_steps == (*missing, *temperature)


def test_a_converged_run_is_not_trained_further(request_for, folder_dataset):
    patient = ("data.size=[32, 32]", "training.patience=3")
    changes = {"methods": ("softmax",), "labeled": (2,), "seeds": 2, "overrides": patient}
    finished, unfinished = plan_runs(request_for(**changes))
    make(finished, str(folder_dataset), epochs=4, stalled=3, evaluated=["test"])
    make(unfinished, str(folder_dataset), epochs=4, stalled=2, evaluated=["test"])
    assert (finished.missing_steps, finished.finished_epochs, finished.epochs) == ((), 4, 7)
    assert unfinished.missing_steps == ("training", "evaluating")


def test_runs_of_other_settings_are_refused_with_every_difference(request_for, folder_dataset):
    runs = plan_runs(request_for())
    make(runs[0], str(folder_dataset), epochs=7, evaluated=["test"])
    make(runs[1], str(folder_dataset), epochs=2)
    check_runs(runs, str(folder_dataset))
    other = plan_runs(
        request_for(overrides=("data.size=[32, 64]", "training.epochs=9", "training.device=cpu"))
    )
    with pytest.raises(ConfigError) as raised:
        check_runs(other, str(folder_dataset))
    text = str(raised.value)
    for run, epochs in ((runs[0], 7), (runs[1], 6)):
        assert f"{run.folder}: data.size was [32, 32], now [32, 64]" in text
        assert f"{run.folder}: training.epochs was {epochs}, now 9" in text
    assert "training.device" not in text
    with pytest.raises(ConfigError, match=r"the data set was .*discs, now isic"):
        check_runs(runs, "isic")
