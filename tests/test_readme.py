"""Every command that the README shows exists and parses."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer

import segconf.methods.method
from benchmarks import table
from segconf.config.schema import ExperimentConfig
from segconf.methods.method import methods
from segconf.metrics.definitions import scaled
from segconf_cli.main import app

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```\n(.*?)```", TEXT, flags=re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
LINES = [line for block in BLOCKS for line in block.splitlines()]
INLINE = re.findall(r"`(segconf [a-z][^`]*)`", TEXT.replace("\n", " "))
# Two spaces or more begin a remark behind a command.
COMMANDS = [re.split(r"\s{2,}", line)[0] for line in LINES if line.startswith("segconf ")] + INLINE


def test_there_are_commands_to_check():
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("line", COMMANDS)
def test_command_parses(line):
    name, *arguments = shlex.split(line)[1:]
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, arguments)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make (\w+)", TEXT, flags=re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_python_example_uses_what_exists():
    from segconf import load_model
    from segconf.inference.model import Model
    from segconf.inference.prediction import Prediction

    assert callable(load_model)
    assert callable(Model.predict)
    names = re.findall(r"prediction\.(\w+)", TEXT)
    assert {"mask", "confidence", "probabilities", "save"} <= set(names)
    for name in names:
        assert hasattr(Prediction, name)


def test_the_method_of_the_readme_is_one(monkeypatch):
    """Cross-entropy with smoothed labels, against its definition."""
    (code,) = (block for block in PYTHON if "@register" in block)
    found = []
    monkeypatch.setattr(segconf.methods.method, "register", lambda kind: found.append(kind) or kind)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})  # noqa: S102 - our own text
    (kind,) = found
    assert kind.name not in methods.names()
    assert kind.summary() == "Cross-entropy with smoothed labels"
    logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    masks = torch.arange(40).reshape(2, 4, 5) % 3
    masks[0, 0, 0] = 255
    terms = kind().loss(SimpleNamespace(outputs=logits, masks=masks), None)
    log_probabilities = logits.log_softmax(dim=1)
    target = torch.nn.functional.one_hot(masks.clamp(max=2), 3).movedim(-1, 1) * 0.9 + 0.1 / 3
    expected = -(target * log_probabilities).sum(dim=1)[masks != 255].mean()
    assert set(terms) == set(kind.terms)
    torch.testing.assert_close(terms["supervised"], expected)


def measured(protocol, labels):
    """Mean AURC and ECE over the seeds of each method, as the tables print them."""
    runs = {}
    for run in table.read_kept(table.RUNS / protocol)[labels]:
        if run.calibrated_by is None and run.about["weights"] == "best":
            runs.setdefault(run.about["method"], []).append(run)
    cells = {}
    for method, found in runs.items():
        assert len(found) == 3, method
        means = {m: np.mean([run.metrics[m] for run in found]) for m in ("aurc", "ece")}
        cells[method] = " / ".join(scaled(value, m) for m, value in means.items())
    return cells


def test_the_table_of_methods_is_that_of_the_registry_with_the_results_that_are_kept():
    masks, labels = measured("equal_cost_220", 20), measured("cifar10", 1000)
    expected = {
        f"| `{name}` | {method.summary()} | {method.passes(ExperimentConfig())} "
        f"| {masks.get(name, '')} | {labels.get(name, '')} |".replace("  ", " ")
        for name in methods.names()
        for method in (methods.get(name),)
    }
    found = {line for line in TEXT.splitlines() if line.startswith("| `")}
    assert found == expected, "\n".join(sorted(expected))


def test_every_file_that_the_contributors_are_sent_to_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = [
        name for name in re.findall(r"`((?:segconf|tests)/[\w/.]+)`", text) if "NAME" not in name
    ]
    assert len(files) >= 15
    assert [name for name in files if not (ROOT / name).exists()] == []
