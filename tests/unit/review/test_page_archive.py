"""The zip file of the page of a model becomes a prediction folder with its decisions."""

import hashlib
import io
import json
import zipfile

import numpy as np
import PIL.Image
import pytest
from typer.testing import CliRunner

from segconf.data.decisions import read_decision_rows
from segconf.errors import DataError, FileError
from segconf.images.masks import read_mask
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.review.page_archive import import_archive
from segconf_cli.main import app
from tests.unit.review.test_page import RECORD, map_content

MODEL = RECORD.values["model"]["sha256"]
MASK = np.array([[0, 1, 1], [0, 0, 1]], np.uint8)
LEVELS = np.array([[65535, 40000, 50000], [60000, 33000, 65000]], np.uint16)


def png(pixels):
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "png")
    return buffer.getvalue()


def contents(names=("a/one", "two"), **changes):
    """Files of an archive with cases of 2 x 3 pixels, the last of which was corrected."""
    digest = hashlib.sha256(MASK.tobytes()).hexdigest()
    found = {"run.json": json.dumps(RECORD.values), "decisions.csv": "for people"}
    for name in names:
        row = CaseRow(name, f"{name}.jpg", 2, 3, image_sha256=f"of {name}", mask_sha256=digest)
        found |= {
            f"review/rows/{name}.json": row.to_json(),
            f"masks/{name}.png": png(MASK),
            f"confidence/{name}.png": png(LEVELS),
            f"review/images/{name}.jpg": "picture",
            f"review/thumbnails/{name}.jpg": "thumbnail",
        }
    decision = {
        "case": names[-1],
        "decision": "corrected",
        "note": "a note",
        "decided_at": "2026-01-02T03:04:05.678Z",
        "image_sha256": f"of {names[-1]}",
        "mask_sha256": digest,
        "mask": {"size": [2, 3], "runs": [6, 1]},
    }
    document = {
        "format": "segconf corrections 1", "model_sha256": MODEL, "decisions": [decision]
    }  # fmt: skip
    return found | {"corrections.json": json.dumps(document)} | changes


def write_zip(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_new_folder_holds_what_the_page_predicted_and_what_was_decided(tmp_path):
    path = write_zip(tmp_path / "segconf.zip", contents())
    maps = tmp_path / "maps"

    shown = CliRunner().invoke(app, ["review", str(maps), "--import", str(path)])

    assert shown.exit_code == 0, shown.output
    assert "1 decision and 1 corrected mask taken." in shown.stdout
    assert "2 cases in" in shown.stdout
    folder = PredictionFolder(maps)
    assert [row.case for row in folder.rows()] == ["a/one", "two"]
    mask, levels = folder.read_slice(folder.rows()[0])
    np.testing.assert_array_equal(mask, MASK)
    np.testing.assert_array_equal(levels, LEVELS)
    assert (maps / "corrected/two.png").is_file()
    np.testing.assert_array_equal(read_mask(maps / "corrected/two.png"), np.ones((2, 3)))
    [decision] = read_decision_rows(maps / "decisions.csv")
    assert (decision.case, decision.decision, decision.note) == ("two", "corrected", "a note")
    name, content = map_content(folder.page_map("a/one").read_text(encoding="utf-8"))
    assert name == "a/one"
    assert content["mask"] == {"size": [2, 3], "runs": [1, 0, 2, 1, 2, 0, 1, 1]}
    assert (maps / "review.html").is_file()
    assert "two,1,3," in (maps / "structures.csv").read_text(encoding="utf-8")


def test_a_later_file_of_the_same_page_adds_its_cases(tmp_path):
    folder = PredictionFolder(tmp_path / "maps")
    import_archive(folder, write_zip(tmp_path / "first.zip", contents(("two",))))
    import_archive(folder, write_zip(tmp_path / "second.zip", contents(("a/one", "two"))))
    assert [row.case for row in folder.rows()] == ["a/one", "two"]


def test_a_case_that_was_not_predicted_keeps_its_reason(tmp_path):
    row = CaseRow("bad", "bad.jpg", flags=("not predicted",), error="bad.jpg: broken")
    extra = {"review/rows/bad.json": row.to_json()}
    folder = PredictionFolder(tmp_path / "maps")
    import_archive(folder, write_zip(tmp_path / "a.zip", contents(**extra)))
    assert [row.error for row in folder.rows()] == ["", "bad.jpg: broken", ""]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"masks/two.png": png(1 - MASK)}, "the mask of two was changed"),
        ({"run.json": "{}"}, "run.json"),
        ({"review/rows/two.json": "{}"}, "two.json"),
        ({"corrections.json": "{}"}, "no corrections of a review"),
    ],
)
def test_altered_files_are_refused(tmp_path, changes, words):
    path = write_zip(tmp_path / "a.zip", contents(**changes))
    with pytest.raises(DataError, match=words):
        import_archive(PredictionFolder(tmp_path / "maps"), path)


def test_nothing_is_written_outside_of_the_folder(tmp_path):
    names = ("../masks/x.png", "masks/../../x.png", "/masks/x.png")
    for name in names:
        path = write_zip(tmp_path / "a.zip", contents(**{name: png(MASK)}))
        try:
            import_archive(PredictionFolder(tmp_path / "maps"), path)
        except DataError as error:
            assert "cannot be unpacked" in str(error)  # noqa: PT017 - others are left out
    assert not list(tmp_path.rglob("x.png"))


def test_what_is_no_archive_of_a_page_is_refused(tmp_path):
    folder = PredictionFolder(tmp_path / "maps")
    with pytest.raises(DataError, match=r"corrections\.json is missing"):
        import_archive(folder, write_zip(tmp_path / "a.zip", {"readme.txt": "hello"}))
    cut = tmp_path / "cut.zip"
    cut.write_bytes(write_zip(tmp_path / "b.zip", contents()).read_bytes()[:-30])
    with pytest.raises(DataError, match="cannot be unpacked"):
        import_archive(folder, cut)
    assert not folder.path.exists()
    folder.path.mkdir()
    (folder.path / "own.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(FileError, match="holds other files"):
        import_archive(folder, write_zip(tmp_path / "b.zip", contents()))
