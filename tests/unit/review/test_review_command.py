"""`segconf review` with a file of corrections."""

import json

from typer.testing import CliRunner

from segconf_cli.main import app
from tests.review_folders import MODEL, entry, write_folder


def test_options_of_a_server_need_one(tmp_path):
    folder = write_folder(tmp_path / "maps")
    for option in (["--port", "0"], ["--no-browser"]):
        found = CliRunner().invoke(app, ["review", str(folder.path), *option])
        assert f"{option[0]}: is about the server. Add --serve" in str(found.exception)


def test_import_from_the_command_line(tmp_path):
    folder = write_folder(tmp_path / "maps")
    mask = {"size": [2, 3], "runs": [6, 1]}
    document = {
        "format": "segconf corrections 1",
        "model_sha256": MODEL,
        "decisions": [entry("two", decision="corrected", mask=mask)],
    }
    path = tmp_path / "corrections.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    arguments = ["review", str(folder.path), "--import", str(path)]

    found = CliRunner().invoke(app, arguments)

    assert found.exit_code == 0
    assert "1 decision and 1 corrected mask taken." in found.stdout
    assert (folder.path / "corrected/two.png").is_file()
    document["model_sha256"] = "00"
    path.write_text(json.dumps(document), encoding="utf-8")
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code != 0
    assert "two: belongs to another model" in str(refused.exception)
