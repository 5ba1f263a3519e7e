"""A run folder of another version says so."""

import json

import pytest
from typer.testing import CliRunner

from segconf import __version__
from segconf.checkpoints.weights import weights_file
from segconf.errors import CheckpointError, ConfigError, TrainingError
from segconf.runs.run_folder import RunFolder
from segconf_cli.main import app


@pytest.fixture
def run(tmp_path):
    """A run with a setting that this version does not know."""
    (tmp_path / "config.yaml").write_text("training:\n  brightness: 3\n")
    (tmp_path / "split.json").write_text("{}")
    return tmp_path


def written_by(run, version):
    (run / "environment.json").write_text(json.dumps({"segconf": version}))


def test_a_run_of_another_version_names_both(run):
    written_by(run, "7.5.0")
    with pytest.raises(ConfigError) as caught:
        RunFolder(run).config()
    problem, way_out = str(caught.value).splitlines()
    assert "training.brightness: unknown key" in problem
    assert f"made by segconf 7.5.0, and this is {__version__}: use that version" in way_out


def test_a_run_of_this_version_was_edited(run):
    written_by(run, __version__)
    with pytest.raises(ConfigError, match="brightness") as caught:
        RunFolder(run).config()
    assert "made by" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "no json", "[]", "{}"])
def test_the_version_may_be_unknown(run, content):
    if content is not None:
        (run / "environment.json").write_text(content)
    with pytest.raises(ConfigError, match="made by segconf of an unknown version"):
        RunFolder(run).config()


def test_continuing_says_it_too(run):
    written_by(run, "7.5.0")
    result = CliRunner().invoke(app, ["train", "--resume", str(run)])
    assert isinstance(result.exception, ConfigError)
    assert "7.5.0" in str(result.exception)


def test_a_folder_of_runs_is_told_apart_and_its_runs_are_named(tmp_path):
    with pytest.raises(TrainingError, match="Give the folder that `segconf train` wrote"):
        RunFolder(tmp_path).config()
    for name in ("b", "a", "d", "c"):
        (tmp_path / name).mkdir()
        for file in ("config.yaml", "split.json"):
            (tmp_path / name / file).write_text("")
    (tmp_path / "0").mkdir()
    (tmp_path / "0/config.yaml").write_text("")  # not a run: it has no split
    runs = ", ".join(str(tmp_path / name) for name in "abc")
    advice = f"Give a run in it: {runs} and 1 more."
    with pytest.raises(TrainingError) as refused:
        RunFolder(tmp_path).config()
    assert str(refused.value).endswith(f"(config.yaml, split.json missing). {advice}")
    with pytest.raises(CheckpointError) as refused:
        weights_file(tmp_path)
    assert str(refused.value).endswith(f"best.safetensors: no such file. {advice}")
