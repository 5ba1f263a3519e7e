"""Every command with an output refuses to write among its inputs, and over other things."""

import json

import pytest
from typer.testing import CliRunner

from segconf.errors import FileError, SegconfError
from segconf_cli.main import app
from tests.tiny_models import write_checkpoint
from tests.untrained_runs import untrained_run

CPU = ("--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with `discs`, `run` and `maps`, and one with somebody's files."""
    folder = tmp_path_factory.mktemp("place")
    untrained_run(folder, training=2, validation=2, test=2)
    write_checkpoint(folder / "weights.safetensors")
    images = folder / "discs/test/images"
    invoke("predict", images, "--out", folder / "maps", "--checkpoint", folder / "run", *CPU)
    (folder / "own").mkdir()
    for name in ("case_200.png", "thesis.txt"):
        (folder / "own" / name).write_text("mine")
    (folder / "own.csv").write_text("a,b\n1,2\n")
    (folder / "own.onnx").write_bytes(b"another network")
    return folder


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def files_in(folder):
    """Size and time of every file."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


FOLDERS = ("own", "discs/images", "discs/images/new", "discs/test/masks/new")
IN_RUN = ("run", "run/new", "run/history")
COMMANDS = {
    "train": (("train", "discs", *CPU), FOLDERS),
    "evaluate": (("evaluate", "run", *CPU), (*FOLDERS, *IN_RUN)),
    "evaluate-ood": (("evaluate", "run", "--ood", "own", *CPU), ("own/new",)),
    "triage": (("triage", "run", *CPU), (*FOLDERS, *IN_RUN)),
    "history": (("history", "run"), (*FOLDERS, *IN_RUN)),
    "surrogates": (("surrogates", "run", *CPU), (*FOLDERS, *IN_RUN)),
    "compare": (("compare", "run"), ("own", *IN_RUN)),
    "score": (
        ("score", "maps/confidence", "discs/test/masks"),
        ("own", "maps/confidence/new", "discs/test/masks", "discs/test/masks/new"),
    ),
    "predict": (
        ("predict", "discs/test/images", "--checkpoint", "run", *CPU),
        ("own", "discs/test/images", "discs/test/images/new"),
    ),
    "export": (
        ("export", "maps"),
        ("own", "maps", "maps/new", "discs/test/images", "discs/images"),
    ),
    "query": (
        ("query", "run", "--budget", "1", "--pool", "discs/test/images", *CPU),
        ("own.csv", "run/new.csv", "discs/test/images/new.csv"),
    ),
    "package": (("package", "run"), ("own.onnx", "run/new.onnx")),
    "bundle": (("package", "run", "--format", "monai"), ("own", "run/new")),
    "demo": (("demo", "--quick"), ("own", "discs")),
    "benchmark": (
        ("benchmark", "discs", "--methods", "softmax", "--labeled", "125"),
        ("own", "discs/images/new"),
    ),
    "active": (
        ("active", "discs", "--rounds", "1", "--budget", "1", "--set", "training.method=softmax"),
        ("own", "discs/images/new"),
    ),
}


@pytest.mark.parametrize(
    ("command", "out"),
    [(command, out) for command, (_, places) in COMMANDS.items() for out in places],
)
def test_an_output_is_refused_before_anything_is_written(place, monkeypatch, command, out):
    monkeypatch.chdir(place)
    before = files_in(place)
    refusal = r"which is read|holds (a run or )?other files|something else is there"
    with pytest.raises(SegconfError, match=refusal):
        invoke(*COMMANDS[command][0], "--out", out)
    assert files_in(place) == before


def test_an_export_replaces_its_own_pictures_and_nothing_else(place, tmp_path, monkeypatch):
    monkeypatch.chdir(place)
    for style in ("contour", "heatmap"):
        assert invoke("export", "maps", "--out", tmp_path, "--style", style).exit_code == 0
    assert json.loads((tmp_path / "export.json").read_text())["style"] == "heatmap"
    assert (tmp_path / "case_200.png").stat().st_size > 0


def test_a_query_replaces_its_own_list_and_loads_the_network_once(place, tmp_path, monkeypatch):
    from segconf.active import query

    loaded = []
    original = query.TorchModel
    monkeypatch.setattr(
        query, "TorchModel", lambda *given, **named: loaded.append(1) or original(*given, **named)
    )
    monkeypatch.chdir(place)
    asked = ("query", "run", "--budget", "1", "--pool", "discs/test/images", *CPU)
    for _ in range(2):
        assert invoke(*asked, "--out", tmp_path / "next.csv").exit_code == 0
    assert len(loaded) == 2
    (tmp_path / "other.png").write_bytes(b"mine")
    with pytest.raises(FileError, match=r"other\.png.*something else is there"):
        invoke(*asked, "--out", tmp_path / "other.csv")
