"""A benchmark of tiny runs: what is done, skipped, resumed, survives a failure, and is tabulated.

Starting a process that imports PyTorch takes seconds, so trainings run in the process of the test;
how processes are started, stopped and reported is tested with a script that only pretends to train.
"""

import csv
import io
import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from segconf.comparison import launcher as execution
from segconf.comparison.benchmark import BenchmarkRequest, build_tables, plan_runs, write_tables
from segconf.comparison.launcher import Launcher, Status, carry_out
from segconf.comparison.tables import row_costs
from segconf.errors import SegconfError
from segconf.training.epoch import Trainer
from segconf_cli.main import app
from segconf_cli.progress import BenchmarkView
from tests.benchmark_steps import launch_here
from tests.training_runs import SETTINGS, Interrupter, use_network

PROTOCOL = """
methods:
  softmax: {settings: {training.epochs: 2, training.batch_labeled: 3}}
  crl: {settings: {training.epochs: 3}}
"""
PRETENDER = """
import pathlib, sys, time
name, *arguments = sys.argv[1:]
value = lambda option: arguments[arguments.index(option) + 1]
if name == "train":
    resumed = "--resume" in arguments
    run = pathlib.Path(value("--resume" if resumed else "--out"))
    run.mkdir(parents=True, exist_ok=True)
    if not resumed:
        (run / "config.yaml").write_text(pathlib.Path(value("--config")).read_text())
        (run / "split.json").write_text("{}")
    table = run / "epochs.csv"
    print("training" + (" on" if resumed else ""), flush=True)
    try:
        for epoch in range(1, 5):
            whole = run / "epochs.whole"
            whole.write_text("epoch\\n" + "0\\n" * epoch)
            whole.replace(table)
            (run / "best.safetensors").touch()
            if "softmax" in run.name and not resumed:
                time.sleep(30)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
elif "crl" in arguments[0]:
    sys.exit("Traceback: something\\nerror: the disk is full\\nsome more words")
else:
    folder = pathlib.Path(arguments[0]) / "evaluation/test"
    folder.mkdir(parents=True)
    (folder / "metrics.json").touch()
"""


@pytest.fixture
def launched(monkeypatch):
    """Commands that were carried out in this process, with the tiny network."""
    use_network(monkeypatch)
    return launch_here(monkeypatch)


@pytest.fixture
def request_(tmp_path, folder_dataset):
    protocol = tmp_path / "protocol.yaml"
    protocol.write_text(PROTOCOL)
    settings = {k: v for k, v in SETTINGS.items() if k not in {"training.epochs", "data.labeled"}}
    return BenchmarkRequest(
        str(folder_dataset),
        (4,),
        ("softmax", "crl"),
        1,
        tmp_path / "out",
        protocol=protocol,
        overrides=tuple(f"{key}={json.dumps(value)}" for key, value in settings.items()),
    )


def run_all(request, **launcher):
    runs = plan_runs(request)
    seen = []
    launch = execution.command_launcher([])
    statuses = carry_out(runs, request, Launcher(launch, **launcher), seen.append)
    return runs, statuses, seen


def test_two_methods_from_nothing_to_the_tables(request_, launched, tmp_path):
    request = replace(request_, calibrate=True)
    runs, statuses, seen = run_all(request)
    assert [(status.name, status.state) for status in statuses] == [
        ("softmax-4-seed0", "finished"),
        ("crl-4-seed0", "finished"),
    ]
    states = [s.state for s in seen if s.name == "crl-4-seed0"]
    assert list(dict.fromkeys(states)) == [
        *("waiting", "training", "evaluating", "calibrating", "finished"),
    ]
    assert (statuses[1].epoch, statuses[1].epochs) == (3, 3)
    assert [line[0] for line in launched] == 2 * ["train", "evaluate", "calibrate", "evaluate"]

    (table,) = build_tables(runs, paper=True)
    assert table.labels == 4
    assert [row.name for row in table.comparison.rows] == [
        "softmax (4 labels)",
        "softmax + temperature (4 labels)",
        "crl (4 labels)",
        "crl + temperature (4 labels)",
    ]
    plain, calibrated = table.comparison.rows[:2]
    assert calibrated.values["miou"] == plain.values["miou"]
    assert calibrated.values["nll"] != plain.values["nll"]
    for run, row in zip(runs, table.comparison.rows[::2], strict=True):
        times = list(csv.DictReader((run.folder / "timing.csv").read_text().splitlines()))
        by_hand = sum(float(time["training_seconds"]) for time in times)
        assert len(times) == run.config.training.epochs
        assert row_costs(row)["training_seconds"] == pytest.approx(by_hand)
        assert row_costs(row)["inference_passes"] == 1
        metrics = json.loads((run.folder / "evaluation/test/metrics.json").read_text())
        assert (
            row_costs(row)["inference_seconds_per_image"] == metrics["inference_seconds_per_image"]
        )
        assert 0 < metrics["inference_seconds_per_image"] < 1

    (folder,) = write_tables([table], tmp_path / "out")
    assert folder == tmp_path / "out/tables/4-labels"
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert [float(row["nll"]) for row in rows] == [r.values["nll"] for r in table.comparison.rows]
    assert (folder / "table.tex").read_text().count(r"\\") == 5

    launched.clear()
    _, statuses, _ = run_all(request)
    assert [status.state for status in statuses] == ["finished", "finished"]
    assert launched == []


def test_an_interrupted_training_is_resumed(request_, launched, monkeypatch):
    original = Trainer.run_epoch
    interrupter = Interrupter(1, 1)

    def run_epoch(self, state):
        interrupter._now = state.epoch
        self.listener.on_step = interrupter.on_step
        return original(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run_epoch", run_epoch)
        runs, statuses, _ = run_all(request_)
    assert [status.state for status in statuses] == ["failed", "failed"]
    assert [run.finished_epochs for run in runs] == [1, 1]
    assert {run.missing_steps for run in runs} == {("training", "evaluating")}
    launched.clear()
    _, statuses, _ = run_all(request_)
    assert [status.state for status in statuses] == ["finished", "finished"]
    resumed = [line[1:3] for line in launched if line[0] == "train"]
    assert resumed == [["--resume", str(run.folder)] for run in runs]
    for run in runs:
        # The first epoch was kept: one line each, and the header.
        lines = (run.folder / "timing.csv").read_text().splitlines()
        assert len(lines) == 1 + run.config.training.epochs


def test_a_failing_run_does_not_stop_the_rest(request_, launched, tmp_path):
    # Half precision is refused on a CPU, by the training itself.
    (tmp_path / "protocol.yaml").write_text(
        "methods: {softmax: {settings: {training.precision: float16, training.epochs: 1}}, "
        "crl: {settings: {training.epochs: 1}}}"
    )
    arguments = ["benchmark", request_.dataset, "--labeled", "4", "--methods", "softmax,crl"]
    arguments += ["--protocol", str(request_.protocol), "--out", str(request_.out), "--paper"]
    arguments += [word for setting in request_.overrides for word in ("--set", setting)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 3, result.output
    table = (request_.out / "tables/4-labels/table.md").read_text()
    assert "| crl (4 labels) |" in table
    assert "softmax" not in table
    costs = result.stdout.partition("cost")[2]
    assert costs.split()[:4] == ["training", "min", "passes", "ms/image"]
    assert "\n  crl  " in costs
    assert "test images, 4 labels" in result.stdout
    assert "1 of 2 runs failed" in result.stderr
    reason = next(line for line in result.stderr.splitlines() if line.startswith("  softmax-4"))
    assert "float16" in reason
    assert str(request_.out / "logs/softmax-4-seed0.log") in reason
    assert "The paper has no numbers for 4 labels." in result.stderr
    assert "crl-4-seed0: finished (2 of 2 runs ended)" in result.stderr
    command = [sys.executable, "-m", "segconf_cli"]
    steps = [[*command, step] for step in ("train", "train", "evaluate")]
    assert [line[:4] for line in launched] == steps


@pytest.fixture
def pretender(tmp_path, monkeypatch):
    script = tmp_path / "pretender.py"
    script.write_text(PRETENDER)
    monkeypatch.setattr(execution, "POLL_SECONDS", 0.02)
    # Where tests run in the background, Ctrl-C is ignored, also by the processes they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield execution.command_launcher([sys.executable, str(script)])
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_stops_the_processes_and_the_next_call_goes_on(request_, pretender):
    request = replace(request_, overrides=("training.epochs=4",))
    runs = plan_runs(request)

    def interrupt_after_an_epoch():
        patience = time.monotonic() + 20
        while runs[0].finished_epochs < 1 and time.monotonic() < patience:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_after_an_epoch).start()
    with pytest.raises(KeyboardInterrupt):
        carry_out(runs, request, Launcher(pretender, jobs=2), lambda _status: None)
    log = (request.out / "logs/softmax-4-seed0.log").read_text().splitlines()
    assert log[-2:] == ["training", "interrupted"]

    statuses = carry_out(runs, request, Launcher(pretender, jobs=2), lambda _status: None)
    softmax, crl = statuses
    assert (softmax.state, softmax.epoch, softmax.reason) == ("finished", 4, "")
    assert (crl.state, crl.reason) == (
        "failed",
        f"the disk is full (log: {request.out}/logs/crl-4-seed0.log)",
    )
    log = (request.out / "logs/softmax-4-seed0.log").read_text().splitlines()
    assert log[3].startswith("$ segconf train --resume ")
    assert log[4] == "training on"


def test_the_processors_are_divided(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert Launcher(None, jobs=3).environment()["OMP_NUM_THREADS"] == "2"
    assert Launcher(None, jobs=20).environment()["OMP_NUM_THREADS"] == "1"
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(execution, "usable_processors", lambda: 6)
    assert Launcher(None, jobs=2).environment()["OMP_NUM_THREADS"] == "3"


def test_a_process_that_does_not_listen_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "GRACE_SECONDS", 0.3)
    script = tmp_path / "deaf.py"
    script.write_text(
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\ntime.sleep(60)\n"
    )
    log = tmp_path / "log"
    process = execution.command_launcher([sys.executable, str(script)])([], log, os.environ)
    patience = time.monotonic() + 20
    while "deaf" not in log.read_text() and time.monotonic() < patience:
        time.sleep(0.02)
    execution.stop_all([process])
    assert process.poll() == -signal.SIGKILL


def test_the_view_on_a_terminal():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    view = BenchmarkView(console)
    for status in (
        Status("crl-4-seed0", "finished", 4, 4),
        Status("softmax-4-seed0", "waiting", 0, 4),
        Status("softmax-4-seed0", "training", 3, 4),
        Status("consistency-4-seed0", "failed", 0, 4, "size was [32, 32]"),
    ):
        view.show(status)
    assert console.file.getvalue() == ""  # no lines beside what is drawn in place
    console.print(view.render())
    overall, *rows = [line.split() for line in console.file.getvalue().splitlines()]
    assert overall[:4] == ["2", "of", "3", "runs"]
    assert "83%" in overall  # (1 + 3 / 6 + 1) / 3
    assert rows == [
        ["consistency-4-seed0", "failed:", "size", "was", "[32,", "32]"],
        ["softmax-4-seed0", "training,", "epoch", "4", "of", "4"],
        ["crl-4-seed0", "finished"],
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--labeled", "few"], "--labeled few"),
        (["--labeled", "0"], "--labeled 0"),
        (["--methods", "magic"], "methods = magic"),
        (["--jobs", "0", "--methods", "consistency"], "--jobs 0"),
        (["--labeled", "4"], "softmax with 4 labels"),
    ],
)
def test_mistakes_are_explained_before_anything_starts(folder_dataset, tmp_path, arguments, named):
    result = CliRunner().invoke(
        app, ["benchmark", str(folder_dataset), "--out", str(tmp_path / "o"), *arguments]
    )
    assert isinstance(result.exception, SegconfError)
    assert named in str(result.exception)
    assert not (tmp_path / "o").exists()
