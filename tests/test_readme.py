"""Every command that the README shows exists and parses."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from segconf.config.schema import ExperimentConfig
from segconf.methods.method import methods
from segconf_cli.main import app

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```\n(.*?)```", TEXT, flags=re.DOTALL)
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


def test_the_table_of_methods_is_that_of_the_registry():
    expected = {
        f"| `{name}` | {method.summary()} | {method.passes(ExperimentConfig())} |"
        for name in methods.names()
        for method in (methods.get(name),)
    }
    assert {line for line in TEXT.splitlines() if line.startswith("| `")} == expected


def test_every_file_that_the_contributors_are_sent_to_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = [
        name for name in re.findall(r"`((?:segconf|tests)/[\w/.]+)`", text) if "NAME" not in name
    ]
    assert len(files) >= 15
    assert [name for name in files if not (ROOT / name).exists()] == []
