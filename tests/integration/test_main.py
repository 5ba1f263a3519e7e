"""How the command ends: exit codes, closed and full outputs, and the report of a bug."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from segconf.doctor import Finding
from segconf_cli import main

needs_posix = pytest.mark.skipif(os.name == "nt", reason="POSIX devices and pipes")
COMMAND = [sys.executable, "-m", "segconf_cli"]


@needs_posix
@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_a_full_standard_output_is_one_message(arguments):
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: standard output: No space left on device.")
    assert ended.stderr.count("\n") == 1


@needs_posix
@pytest.mark.parametrize("arguments", ["--version", "--help"])
def test_an_output_that_nobody_reads_is_no_error(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*COMMAND, arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, "")


@needs_posix
def test_closed_outputs_are_no_error():
    line = f"{shlex.quote(sys.executable)} -m segconf_cli --version >&- 2>&-"
    assert subprocess.run(line, shell=True, check=False).returncode == 0  # noqa: S602


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(28, "No space left on device", "a/b"), 2, "error: a/b: No space left on device. "),
        (PermissionError(13, "Permission denied", "x"), 2, "error: x: Permission denied. "),
        (OSError(24, "Too many open files"), 2, "error: a file, a device or a connection: Too "),
        (MemoryError(), 2, "error: the memory is full. "),
        (KeyboardInterrupt(), 130, "interrupted"),
        (EOFError("odd"), 1, "error: a bug in segconf: EOFError: odd. Please report it with "),
        (KeyError("x\ny"), 1, r"error: a bug in segconf: KeyError: 'x\ny'. Please report it with "),
        (RecursionError("deep"), 1, "error: a bug in segconf: RecursionError: deep. "),
    ],
)
def test_whatever_a_command_raises_is_one_line(segconf, monkeypatch, tmp_path, error, code, words):
    def broken(*_):
        raise error

    monkeypatch.setattr("segconf.doctor.examine", broken)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    found, out, err = segconf("doctor")
    assert (found, out) == (code, "")
    assert err.startswith(words)
    assert err.count("\n") == 1
    reports = list(tmp_path.glob("segconf-*.txt"))
    assert len(reports) == (code == main.BUG)
    for report in reports:
        assert str(report) in err
        text = report.read_text()
        assert "Traceback" in text
        assert "in broken" in text
        assert "['segconf', 'doctor']" in text


def test_brackets_are_text(segconf, monkeypatch):
    findings = [
        Finding("DICOM", "[/x] :dog:", "pip install 'segconf[dicom]'"),
        Finding("nevus [benign]", "there"),
    ]
    monkeypatch.setattr("segconf.doctor.examine", lambda _: findings)
    code, out, _ = segconf("doctor")
    assert code == 0
    for words in ("[/x] :dog:", "-> pip install 'segconf[dicom]'", "nevus [benign]"):
        assert words in out


def test_a_name_that_is_not_unicode_can_be_shown(segconf):
    code, _, err = segconf("evaluate", os.fsdecode(b"\xff\xfe"))
    assert code == 2
    assert r"\udcff\udcfe: not a run folder" in err
