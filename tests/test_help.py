"""The help of every command: a text for each option, and an example that parses."""

import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from segconf_cli.main import app

COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name):
    unexplained = [
        parameter.name for parameter in COMMANDS[name].params if not getattr(parameter, "help", "")
    ]
    assert unexplained == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_parses(name):
    text = " ".join(COMMANDS[name].help.split())
    example = re.search(r"Example: segconf (.*)$", text)
    assert example, text
    said, *arguments = shlex.split(example[1])
    assert said == name
    COMMANDS[name].make_context(name, arguments)


def test_commands_are_grouped():
    shown = CliRunner().invoke(app, ["--help"]).stdout
    for panel in ("Begin", "Train and measure", "Predict and review", "Annotate", "Compare"):
        assert panel in shown
    assert all(name in shown for name in COMMANDS)
