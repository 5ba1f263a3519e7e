"""The doctor names what is there, and a way out for what is not."""

import importlib.metadata
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from segconf.doctor import EXTRAS, examine
from segconf_cli.main import app


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A folder without anything, and no settings in the environment."""
    for name in ("SEGCONF_DATA", "SEGCONF_WEIGHTS", "SEGCONF_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def findings(folder):
    return {finding.subject: finding for finding in examine(folder)}


def test_everything_that_is_missing_comes_with_advice(bare):
    found = findings(bare)
    assert "--download" in found["ISIC 2017"].advice
    assert "encoder_weights=none" in found["encoder weights"].advice
    assert "segconf train" in found["runs"].advice
    assert torch.__version__.partition("+")[0] in found["packages"].found


def test_extras_are_those_of_the_installation():
    offered = importlib.metadata.metadata("segconf").get_all("Provides-Extra")
    assert sorted(EXTRAS) == sorted(offered)


def test_a_missing_extra_is_named_with_the_command_that_installs_it(bare, monkeypatch):
    required = ["numpy>=1.26", "numpy>=1.26; extra == 'onnx'", "no-such>=1; extra == 'dicom'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: required)
    found = findings(bare)
    assert found["packages"].found == f"numpy {np.__version__}"
    assert (found["extra onnx"].found, found["extra onnx"].advice) == (
        f"numpy {np.__version__}",
        "",
    )
    assert found["extra dicom"].found == "no-such not installed"
    assert found["extra dicom"].advice == "for DICOM files: pip install 'segconf[dicom]'"


def test_weights_and_data_are_counted(bare, monkeypatch):
    weights, data = bare / "weights", bare / "isic"
    weights.mkdir()
    for name in ("a.pth", "b.safetensors", "notes.txt"):
        (weights / name).write_bytes(b"")
    images = data / "ISIC-2017_Training_Data"
    images.mkdir(parents=True)
    for number in range(10):
        (images / f"ISIC_{number:07d}.jpg").write_bytes(b"")
    monkeypatch.setenv("SEGCONF_WEIGHTS", str(weights))
    monkeypatch.setenv("SEGCONF_DATA", str(data))
    found = findings(bare)
    assert found["encoder weights"].found.startswith("a.pth, b.safetensors in")
    assert found["encoder weights"].advice == ""
    assert found["ISIC 2017"].found.startswith("10 training, 0 validation and 0 test images")


def test_little_disk_space_is_a_warning(bare, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2e9))
    found = findings(bare)["disk"]
    assert found.found == "2.0 GB free in this folder"
    assert "another folder" in found.advice


@pytest.mark.usefixtures("bare")
def test_command_shows_findings_and_advice():
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert "ISIC 2017" in result.stdout
    assert "->" in result.stdout


def test_memory_that_holds_files_is_free(bare, monkeypatch):
    text = "MemTotal: 16000000 kB\nMemFree: 200000 kB\nMemAvailable:   5000000 kB\n"
    (bare / "meminfo").write_text(text)
    monkeypatch.setattr("segconf.doctor.MEMORY", bare / "meminfo")
    assert findings(bare)["memory"].found == "5.1 GB free"  # 5000000 * 1024
    monkeypatch.setattr("segconf.doctor.MEMORY", bare / "missing")
    monkeypatch.setattr("os.sysconf", {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4000}.get)
    assert findings(bare)["memory"].found == "0.0 GB free"
