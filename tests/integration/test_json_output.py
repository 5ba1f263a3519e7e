"""`--json` and `--quiet`: one object on standard output, of a known shape, for every command."""

import json

import jsonschema
import pytest

from segconf import __version__
from segconf.review.server import ReviewServer
from segconf_cli.main import COMMANDS
from segconf_cli.outcome import plain
from tests.conftest import write_folder
from tests.training_runs import SETTINGS, train_tiny, use_network

TEXT, COUNT, NUMBER = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "number"}
MAYBE = {"type": ["number", "null"]}
LIST, OBJECT = {"type": "array"}, {"type": "object"}
MAYBE_TEXT, MAYBE_LIST = {"type": ["string", "null"]}, {"type": ["array", "null"]}


def schema(command, *, optional=None, **fields):
    """The object of a command: what all have, its own fields, and those it may have; no others."""
    common = {
        "command": {"const": command},
        "version": {"const": __version__},
        "exit_code": {"enum": [0, 2, 3]},
    }
    needed = {**common, **fields}
    return {
        "type": "object",
        "properties": {**needed, **(optional or {})},
        "required": list(needed),
        "additionalProperties": False,
    }


SCHEMAS = {
    "evaluate": schema(
        "evaluate",
        about=OBJECT,
        metrics={"type": "object", "additionalProperties": MAYBE, "required": ["aurc", "ece"]},
        intervals={"type": "object", "additionalProperties": LIST},
        per_image=OBJECT,
        folder=TEXT,
        threshold=OBJECT,
        guarantees=LIST,
        next=TEXT,
        optional={"out_of_distribution": OBJECT},
    ),
    "calibrate": schema("calibrate", run=TEXT, calibration=OBJECT, next=TEXT),
    "predict": schema(
        "predict",
        model=TEXT,
        folder=TEXT,
        review_page=TEXT,
        predicted=COUNT,
        skipped=COUNT,
        referred=COUNT,
        broken={"type": "array", "items": {"type": "object", "required": ["case", "error"]}},
        next=TEXT,
        optional={"out_of_distribution": COUNT, "dicom": OBJECT},
    ),
    "review": schema(
        "review",
        folder=TEXT,
        review_page=TEXT,
        cases=COUNT,
        optional={"address": TEXT, "decisions": LIST, "masks": LIST, "replaced": LIST},
    ),
    "export": schema("export", folder=TEXT, files={"type": "array", "items": TEXT}),
    "triage": schema(
        "triage",
        folder=TEXT,
        images=COUNT,
        mean_dice=NUMBER,
        referred_fraction=NUMBER,
        kept_dice=NUMBER,
        optional={"referred": LIST},
    ),
    "query": schema("query", list=TEXT, contact_sheet=TEXT, choices=LIST, next=TEXT),
    "compare": schema(
        "compare",
        comparison={"type": "object", "required": ["rows", "baseline"]},
        folder=MAYBE_TEXT,
    ),
    "score": schema(
        "score",
        about=OBJECT,
        metrics=OBJECT,
        intervals=OBJECT,
        per_image=OBJECT,
        folder=MAYBE_TEXT,
        aurc_bounds=MAYBE_LIST,
        nll_bounds=MAYBE_LIST,
    ),
    "data": schema("data", folder=TEXT, parts=LIST, notes=LIST, problems=LIST),
    "doctor": schema("doctor", findings={"type": "array", "items": OBJECT, "minItems": 1}),
    "models": schema("models", models={"type": "array", "items": OBJECT, "minItems": 1}),
    "history": schema("history", folder=TEXT, images=COUNT, epochs=COUNT),
    "train": schema(
        "train",
        run=TEXT,
        method=TEXT,
        networks={"type": "array", "items": OBJECT, "minItems": 1},
        next=TEXT,
    ),
    "surrogates": schema("surrogates", folder=TEXT, runs={"type": "array", "items": OBJECT}),
    "package": schema("package", path=TEXT, bytes=COUNT, difference=NUMBER),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of the tiny network on discs, calibrated, and the discs."""
    root = write_folder(tmp_path_factory.mktemp("data") / "discs", 8)
    write_folder(root / "val", 4, first=100)
    write_folder(root / "test", 3, first=200)
    run = tmp_path_factory.mktemp("runs") / "run"
    train_tiny(root, run, calibrate=True, training__method="consistency")
    return run, root


@pytest.fixture
def answer(segconf, monkeypatch):
    """Run a command with `--json`; its object, after a check of its shape and exit code."""
    use_network(monkeypatch)

    def run(command, *arguments, code=0):
        ended, out, _ = segconf(command, *arguments, "--json")
        found = json.loads(out)  # one object, and nothing else
        assert ended == found["exit_code"] == code, found
        if code == 0:
            jsonschema.validate(found, SCHEMAS[command])
        return found

    return run


def test_the_journey_of_a_run(answer, trained, tmp_path):
    run, root = trained
    calibrated = answer("calibrate", run)
    assert calibrated["calibration"]["temperature"]["value"] > 0
    assert calibrated["next"] == f"segconf evaluate {run}"
    measured = answer("evaluate", run)
    stored = json.loads((run / "evaluation/test/metrics.json").read_text(encoding="utf-8"))
    assert measured["metrics"] == stored["metrics"]["all"]["strict"]
    compared = answer("compare", run)["comparison"]
    assert compared["rows"][0]["values"]["aurc"] == stored["metrics"]["all"]["strict"]["aurc"]
    assert len(answer("query", run, "--budget", 2)["choices"]) == 2
    assert answer("history", run, "--out", tmp_path / "history")["images"] == 8
    maps = tmp_path / "maps"
    predicted = answer("predict", root / "test/images", "--out", maps, "--checkpoint", run)
    assert (predicted["predicted"], predicted["broken"]) == (3, [])
    assert answer("review", maps)["cases"] == 3
    assert len(answer("export", maps, "--out", tmp_path / "slides")["files"]) == 3
    assert answer("triage", run, maps)["images"] == 3
    scored = answer("score", maps, root / "test/masks")
    assert scored["about"]["images"] == 3
    assert answer("data", root)["problems"] == []


def test_a_training_its_package_and_its_surrogates(answer, trained, tmp_path):
    _, root = trained
    chosen = SETTINGS | {"training.epochs": 2, "training.snapshots": 2}
    options = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
    learned = answer("train", root, "--out", "run", "--method", "softmax", *options)
    (network,) = learned["networks"]
    assert (network["folder"], network["epochs"]) == ("run", 2)
    assert learned["next"] == "segconf evaluate run"
    assert [one["run"] for one in answer("surrogates", "run")["runs"]] == ["run"]
    written = answer("package", "run", "--format", "onnx", "--out", "model.onnx")
    assert written["bytes"] == (tmp_path / "model.onnx").stat().st_size


def test_a_server_tells_its_address_at_once_and_at_the_end(segconf, trained, monkeypatch):
    use_network(monkeypatch)
    monkeypatch.setattr(ReviewServer, "serve_forever", interrupted)
    run, root = trained
    segconf("predict", root / "test/images", "--out", "maps", "--checkpoint", run)
    code, out, err = segconf("review", "maps", "--serve", "--no-browser", "--json")
    found = json.loads(out)
    jsonschema.validate(found, SCHEMAS["review"])
    assert code == 0
    assert found["address"].startswith("http://127.0.0.1:")
    assert err.splitlines()[0] == found["address"]


def interrupted(_server):
    raise KeyboardInterrupt


def test_commands_without_a_run(answer):
    assert answer("models")["models"][0]["name"] == "isic2017"
    assert all({"subject", "found", "advice"} <= f.keys() for f in answer("doctor")["findings"])


def test_a_broken_image_is_named(answer, trained, tmp_path):
    run, _ = trained
    folder = write_folder(tmp_path / "new", 1) / "images"
    (folder / "b.png").write_text("no picture", encoding="utf-8")
    found = answer("predict", folder, "--out", tmp_path / "maps", "--checkpoint", run, code=3)
    assert found["predicted"] == 1
    assert [one["case"] for one in found["broken"]] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nowhere", "--out", "maps"], "nowhere: no such file or folder. Check the path."),
        ([], "the command line cannot be read; standard error says why"),
    ],
)
def test_an_error_is_an_object_too(answer, arguments, error):
    found = answer("predict", *arguments, code=2)
    assert found["error"] == error
    assert found["command"] == ("predict" if arguments else "")


def test_quiet_keeps_results_problems_and_errors(segconf, trained, tmp_path, monkeypatch):
    use_network(monkeypatch)
    run, _ = trained
    folder = write_folder(tmp_path / "new", 1) / "images"
    options = ("--checkpoint", run, "--quiet")
    code, out, err = segconf("predict", folder, "--out", tmp_path / "one", *options)
    assert (code, err) == (0, "")
    assert "Predicted 1 image; " in out
    assert "Next:" not in out
    _, out, err = segconf("predict", folder, "--out", tmp_path / "talks", *options[:-1])
    assert "Next:" not in out  # advice is no result
    assert err.splitlines()[-1].startswith("Next: segconf review ")
    (folder / "b.png").write_text("no picture", encoding="utf-8")
    code, _, err = segconf("predict", folder, "--out", tmp_path / "two", *options)
    assert code == 3
    assert err.startswith("1 image could not be read:")
    code, _, err = segconf("predict", "nowhere", "--out", tmp_path / "three", *options)
    assert (code, err) == (2, "error: nowhere: no such file or folder. Check the path.\n")


def test_every_command_has_both_options(segconf):
    for name in [command.__name__ for panel in COMMANDS.values() for command in panel]:
        _, out, _ = segconf(name, "--help")
        assert "--quiet" in out
        assert "--json" in out


def test_values_without_a_place_in_json_are_refused():
    assert plain({"a": (1.5, float("nan"), None)}) == {"a": [1.5, None, None]}
    with pytest.raises(TypeError, match="set has no place"):
        plain({1})
