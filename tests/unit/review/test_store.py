"""Decisions and corrections of a review, checked and saved into the prediction folder."""

import json

import numpy as np
import PIL.Image
import pytest

from segconf.errors import DataError
from segconf.review.store import ConflictError, ReviewStore
from tests.review_folders import HASHES, MODEL, entry, write_folder


@pytest.fixture
def store(tmp_path):
    return ReviewStore(write_folder(tmp_path / "maps"))


def save(store, case="a/one", *, version=None, **values):
    checked = store.checked(case, entry(case, **values), MODEL)
    return store.save(checked, version=version)


def table(store):
    return (store.folder.path / "decisions.csv").read_text(encoding="utf-8").splitlines()


def test_a_decision_and_a_mask(store):
    # 2 x 3 pixels: two of class 0, three of class 1, one of class 0.
    save(
        store, decision="corrected", note="hair", mask={"size": [2, 3], "runs": [2, 0, 3, 1, 1, 0]}
    )
    assert table(store) == [
        "case,file,decision,note,decided_at,image_sha256",
        f"a/one,a/one.png,corrected,hair,2026-01-02T03:04:05.678Z,{HASHES['a/one'][0]}",
    ]
    with PIL.Image.open(store.folder.path / "corrected/a/one.png") as picture:
        assert np.asarray(picture).tolist() == [[0, 0, 1], [1, 1, 0]]
    assert store.corrected_mask("a/one") == {"size": [2, 3], "runs": [2, 0, 3, 1, 1, 0]}
    kept = store.state()["a/one"]
    assert (kept["decision"], kept["note"], kept["corrected"]) == ("corrected", "hair", True)

    save(store, decision="reject")  # the mask stays until it is taken back
    assert store.state()["a/one"]["corrected"]
    save(store, decision="", mask=None)
    assert store.state() == {}
    assert not list((store.folder.path / "corrected").rglob("*.*"))


def test_two_readers_do_not_overwrite_each_other(store):
    first = save(store, decision="accept", version="")
    with pytest.raises(ConflictError, match="a/one: was changed elsewhere"):
        save(store, decision="reject", version="")
    assert table(store)[1].split(",")[2] == "accept"
    second = save(store, decision="reject", version=first)
    assert second != first
    save(store, "two", decision="edit", version="")  # another case is another matter
    mask = {"size": [2, 3], "runs": [6, 1]}
    third = save(store, decision="corrected", version=second, mask=mask)
    again = save(store, decision="corrected", version=third, mask={"size": [2, 3], "runs": [6, 0]})
    assert again != third  # the time of the entry is the same, the mask is not
    save(store, decision="edit", version=None)  # on purpose


@pytest.mark.parametrize(
    ("case", "values", "words"),
    [
        ("three", {}, "three: no such case"),
        ("two", {"image_sha256": "00"}, "belongs to another image"),
        ("two", {"mask_sha256": None}, "belongs to another predicted mask"),
        ("two", {"decision": "maybe"}, "unknown decision 'maybe'"),
        ("two", {"decision": 3}, "expected text"),
        ("two", {"note": "x" * 10_001}, "at most 10000 characters"),
        ("two", {"mask": {"size": [3, 2], "runs": [6, 0]}}, "not a mask of 2 x 3"),
        ("two", {"mask": {"size": [2, 3], "runs": [5, 0]}}, "do not add up"),
        ("two", {"mask": {"size": [2, 3]}}, "not a mask of 2 x 3"),
        ("two", {"mask": [1, 2]}, "not a mask of 2 x 3"),
        ("two", {"mask": {"size": [2, 3], "runs": [6, 2]}}, "more than 2 classes"),
    ],
)
def test_entries_that_are_refused(store, case, values, words):
    with pytest.raises(DataError, match=words):
        save(store, case, **values)
    assert not (store.folder.path / "decisions.csv").exists()
    assert not (store.folder.path / "corrected").exists()


def test_other_models_are_refused_and_corrected_needs_a_mask(store):
    with pytest.raises(DataError, match="belongs to another model"):
        store.checked("two", entry("two"), "11" * 32)
    with pytest.raises(DataError, match="not an entry"):
        store.checked("two", [], MODEL)
    with pytest.raises(DataError, match="there is no corrected mask"):
        save(store, decision="corrected")
    assert not (store.folder.path / "decisions.csv").exists()


def test_names_and_links_do_not_lead_out_of_the_folder(tmp_path):
    mask = {"size": [2, 3], "runs": [6, 1]}
    store = ReviewStore(write_folder(tmp_path / "maps", names=("../../out",)))
    with pytest.raises(DataError, match="no such case"):
        save(store, "../../out", decision="corrected", mask=mask)
    store = ReviewStore(write_folder(tmp_path / "other"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other/corrected").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="lies outside"):
        save(store, "two", decision="corrected", mask=mask)
    assert not list((tmp_path / "elsewhere").iterdir())


def exported(path, *entries, model=MODEL):
    document = {"format": "segconf corrections 1", "model_sha256": model, "decisions": entries}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_import_takes_all_entries_and_says_what_it_replaced(store, tmp_path):
    save(store, "two", decision="accept", note="mine")
    mask = {"size": [2, 3], "runs": [6, 1]}
    one = entry("a/one", decision="corrected", mask=mask)
    path = exported(tmp_path / "c.json", one, entry("two", decision="reject"))
    report = store.import_file(path)
    assert (report.cases, report.corrected) == (("a/one", "two"), ("a/one",))
    assert report.replaced == ("two",)
    assert [line.split(",")[2] for line in table(store)[1:]] == ["corrected", "reject"]
    assert store.import_file(path).replaced == ()


def test_import_says_which_corrected_masks_it_replaced(store, tmp_path):
    mask, other = ({"size": [2, 3], "runs": [6, value]} for value in (1, 0))
    save(store, decision="corrected", mask=mask)
    save(store, "two", decision="", mask=mask)
    path = tmp_path / "c.json"
    same = entry("a/one", decision="corrected", mask=mask)
    assert store.import_file(exported(path, same)).replaced == ()
    changed = [entry("a/one", decision="corrected", mask=other), entry("two", decision="accept")]
    assert store.import_file(exported(path, *changed)).replaced == ("a/one", "two")
    assert store.corrected_mask("a/one") == other
    # Accepted without a mask is the prediction, which training uses.
    assert store.corrected_mask("two") is None


def test_import_of_a_wrong_file_names_every_problem_and_writes_nothing(store, tmp_path):
    good, bad = entry("two", decision="accept"), entry("a/one", image_sha256="00")
    path = exported(tmp_path / "c.json", good, bad, entry("nobody"))
    with pytest.raises(DataError) as refusal:
        store.import_file(path)
    assert "a/one: belongs to another image (SHA-256 00, here" in str(refusal.value)
    assert "nobody: no such case" in str(refusal.value)
    assert not (store.folder.path / "decisions.csv").exists()
    with pytest.raises(DataError, match="belongs to another model"):
        store.import_file(exported(path, good, model="22"))
    for text in ("", "[]", '{"format": "segconf decisions 1", "decisions": []}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="no corrections of a review"):
            store.import_file(path)
    with pytest.raises(DataError, match="no such file"):
        store.import_file(tmp_path / "absent.json")
