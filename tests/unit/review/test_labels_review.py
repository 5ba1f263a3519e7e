"""The review of labels: the page as text, what is kept of it, and what is refused."""

import json

import numpy as np
import PIL.Image
import pytest

from segconf.data.datasets.dataset import find_cases
from segconf.errors import DataError
from segconf.results.label_rows import LabelRow
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.run_record import RunRecord
from segconf.review.page import assemble, review_page
from segconf.review.pictures import has_label_pictures, write_label_pictures
from segconf.review.store import ConflictError, ReviewStore
from tests.review_folders import (
    CLASSES,
    LABEL_RECORD,
    MODEL,
    label_entry,
    label_row,
    write_label_folder,
)
from tests.unit.review.test_page import HOSTILE, page_data

ONE = label_row("a/one", "malignant", 0.2, 0.7000004, 0.0999996, flags=("low confidence",))
TWO = label_row("two", "benign", 0.5, 0.25, 0.25, flags=("note: hair",), height=300)
BROKEN = LabelRow("broken", "broken.png", "broken", flags=("not predicted",), error="no picture")
ROWS = (ONE, TWO, BROKEN)


@pytest.fixture
def store(tmp_path):
    return ReviewStore(write_label_folder(tmp_path / "maps", ROWS))


def save(store, row=ONE, *, version=None, **values):
    entry = store.checked(row.case, label_entry(row, **values), MODEL)
    return store.save(entry, version=version)


def lines(store, name):
    return (store.folder.path / name).read_text(encoding="utf-8").splitlines()


def test_the_page_has_classes_probabilities_and_flags():
    found = page_data(review_page(ROWS, LABEL_RECORD))
    assert found["run"]["class_names"] == list(CLASSES)
    assert found["run"]["order"] == "confidence"
    one, two, broken = found["cases"]
    assert (one["label"], one["confidence"]) == ("malignant", 0.7)
    assert one["probabilities"] == [0.2, 0.7, 0.1]
    assert (one["height"], one["width"], one["small"], two["small"]) == (20, 30, True, False)
    assert one["ood_score"] is None
    assert [row["severity"] for row in found["cases"]] == ["refer", "note", "refer"]
    assert (broken["confidence"], broken["error"]) == (None, "no picture")


def test_hostile_names_of_classes_cannot_leave_their_string():
    model = {**LABEL_RECORD.values["model"], "classes": ["a", HOSTILE]}
    page = review_page(
        [label_row("a", HOSTILE, 0.1, 0.9)], RunRecord({**LABEL_RECORD.values, "model": model})
    )
    assert HOSTILE not in page
    assert page_data(page)["cases"][0]["label"] == HOSTILE


def test_assembling_writes_the_page_and_leaves_the_table(tmp_path):
    folder = write_label_folder(tmp_path / "maps", ROWS)
    before = folder.labels_file.read_bytes()
    assert assemble(folder) == 3
    assert folder.labels_file.read_bytes() == before
    assert [row["case"] for row in page_data(folder.page_file.read_text())["cases"]] == [
        "a/one", "broken", "two"
    ]  # fmt: skip
    assert not folder.table_file.exists()
    table = write_label_folder(
        tmp_path / "rows", [label_row("1", "benign", 0.5, 0.3, 0.2, width=0)]
    )
    with pytest.raises(DataError, match="labels of the rows of a table"):
        assemble(table)


def test_accepted_and_chosen_labels_become_a_table_of_labels(store, tmp_path):
    save(store, ONE, decision="corrected", label="=1+1", note="hair")
    save(store, TWO, decision="accept", label="benign")
    save(store, BROKEN, decision="edit")
    assert lines(store, "decisions.csv") == [
        "case,file,decision,note,decided_at,image_sha256,label",
        f"a/one,a/one.png,corrected,hair,2026-01-02T03:04:05.678Z,{ONE.image_sha256},'=1+1",
        "broken,broken.png,edit,,2026-01-02T03:04:05.678Z,,",
        f"two,two.png,accept,,2026-01-02T03:04:05.678Z,{TWO.image_sha256},benign",
    ]
    assert lines(store, "labels.csv") == ["image,label", "a/one.png,'=1+1", "two.png,benign"]
    assert not (store.folder.path / "corrected").exists()

    # A folder of images reads the table back, and a third image has no label.
    data = tmp_path / "data"
    for name in ("a/one", "two", "three"):
        path = data / "images" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (8, 8)).save(path)
    (data / "labels.csv").write_bytes((store.folder.path / "labels.csv").read_bytes())
    found = find_cases(str(data))
    assert found.class_names == ("=1+1", "benign")
    assert {case.id: case.label for case in found.training} == {"a/one": 0, "two": 1, "three": None}

    assert store.state()["a/one"]["label"] == "=1+1"
    save(store, ONE, decision="reject")
    assert lines(store, "labels.csv") == ["image,label", "two.png,benign"]
    save(store, TWO, decision="")
    assert not (store.folder.path / "labels.csv").exists()
    assert set(store.state()) == {"a/one", "broken"}


def test_two_readers_do_not_overwrite_each_other(store):
    first = save(store, decision="corrected", label="benign", version="")
    with pytest.raises(ConflictError, match="a/one: was changed elsewhere"):
        save(store, decision="accept", label="malignant", version="")
    assert save(store, decision="corrected", label="=1+1", version=first) != first


@pytest.mark.parametrize(
    ("row", "values", "words"),
    [
        (ONE, {"decision": "corrected", "label": "cat"}, "corrected as 'cat'. The classes of this"),
        (ONE, {"decision": "corrected"}, "corrected as no class. The classes .* benign, malig"),
        (ONE, {"decision": "corrected", "label": ["benign"]}, "corrected as"),
        (ONE, {"decision": "accept", "label": "benign"}, "but 'malignant' was predicted"),
        (ONE, {"predicted": "benign"}, r"another predicted label \(benign, here malignant\)"),
        (ONE, {"image_sha256": "00"}, "belongs to another image"),
        (ONE, {"mask": {"size": [1, 1], "runs": [1, 0]}}, "a mask, but this folder holds labels"),
        (BROKEN, {"decision": "accept", "label": ""}, "the image was not predicted"),
        (label_row("three", "benign", 1, 0, 0), {}, "three: no such case"),
    ],
)
def test_entries_that_are_refused(store, row, values, words):
    with pytest.raises(DataError, match=words):
        save(store, row, **values)
    assert not (store.folder.path / "decisions.csv").exists()
    assert not (store.folder.path / "labels.csv").exists()


def exported(path, *entries):
    document = {"format": "segconf corrections 1", "model_sha256": MODEL, "decisions": entries}
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def test_import_takes_labels(segconf, store, tmp_path):
    path = exported(
        tmp_path / "c.json",
        label_entry(ONE, decision="corrected", label="benign"),
        label_entry(TWO, decision="accept", label="benign"),
    )
    code, text, error = segconf("review", str(store.folder.path), "--import", path)
    assert code == 0, error
    assert "2 decisions and 1 corrected label taken." in text
    assert "3 cases in" in text
    assert "and predictions.csv." in text.replace("\n", " ")
    assert lines(store, "labels.csv") == ["image,label", "a/one.png,benign", "two.png,benign"]


def test_import_names_every_mistake_and_writes_nothing(segconf, store, tmp_path):
    path = exported(
        tmp_path / "c.json",
        label_entry(ONE, decision="corrected", label="cat"),
        label_entry(TWO, decision="accept", label="benign"),
        label_entry(TWO, decision="reject"),
        label_entry(label_row("nobody", "benign", 1, 0, 0)),
    )
    code, _, error = segconf("review", str(store.folder.path), "--import", path)
    assert code == 2
    assert "a/one: corrected as 'cat'" in error
    assert "two: two decisions about one image" in error
    assert "nobody: no such case" in error
    assert not (store.folder.path / "decisions.csv").exists()
    assert not store.folder.page_file.exists()


def gradient(height, width):
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows % 256, columns % 256, (rows + columns) % 256]).astype(np.uint8)


def test_a_small_image_is_kept_as_it_is_and_is_its_own_thumbnail(tmp_path):
    folder, row = PredictionFolder(tmp_path), label_row("a/b", "benign", 1, height=32, width=40)
    assert not has_label_pictures(folder, row)
    write_label_pictures(folder, row, gradient(32, 40))
    with PIL.Image.open(tmp_path / "review/images/a/b.png") as picture:
        assert np.array_equal(np.asarray(picture), gradient(32, 40).transpose(1, 2, 0))
    assert has_label_pictures(folder, row)
    assert not (tmp_path / "review/thumbnails").exists()


@pytest.mark.parametrize(
    ("size", "shown", "small"),
    [((300, 600), (600, 300), (168, 84)), ((2800, 700), (350, 1400), (42, 168))],
)
def test_a_large_image_has_a_thumbnail(tmp_path, size, shown, small):
    height, width = size
    row = label_row("b", "benign", 1, height=height, width=width)
    write_label_pictures(PredictionFolder(tmp_path), row, gradient(height, width)[:1])
    for name, expected in (("images", shown), ("thumbnails", small)):
        with PIL.Image.open(tmp_path / f"review/{name}/b.jpg") as picture:
            assert (picture.size, picture.mode) == (expected, "RGB")
    assert has_label_pictures(PredictionFolder(tmp_path), row)
