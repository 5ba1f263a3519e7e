"""Names of a review matched with the cases of a data set."""

from pathlib import Path

import pytest

from segconf.data.cases import Case
from segconf.data.decisions import (
    Decision,
    decided_cases,
    read_decision_rows,
    write_decisions,
)
from segconf.errors import DataError

CASES = (
    Case("a/one", Path("images/a/one.png")),
    Case("b/one", Path("images/b/one.png")),
    Case("b/two", Path("images/b/two.png")),
    Case("scan_z000", Path("images/scan.nii.gz"), slice_index=0),
    Case("scan_z001", Path("images/scan.nii.gz"), slice_index=1),
)


def matched_ids(*names):
    matched, unmatched = decided_cases(dict.fromkeys(names, "edit"), CASES, {})
    return {name: [case.id for case in cases] for name, cases in matched.items()}, unmatched


def test_ids_names_and_volumes():
    found, unmatched = matched_ids("b/one", "two", "scan", "elsewhere/b/two", "three")
    assert found == {
        "b/one": ["b/one"],
        "two": ["b/two"],  # the folder b was predicted
        "scan": ["scan_z000", "scan_z001"],
        "elsewhere/b/two": ["b/two"],  # a folder above was predicted
    }
    assert unmatched == ["three"]


def test_a_name_of_several_images():
    with pytest.raises(DataError, match="decision about one: several images have that name"):
        matched_ids("one")


def test_a_table_is_read_as_it_was_written(tmp_path):
    rows = [
        Decision("b/two", "b/two.png", "corrected", 'hair, "ruler"\nand ink', "2026-01-02", "ab"),
        Decision("a", "a.nii.gz", "", "a note only"),
    ]
    write_decisions(tmp_path / "decisions.csv", rows)
    assert read_decision_rows(tmp_path / "decisions.csv") == rows[::-1]  # by case
    header = (tmp_path / "decisions.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == "case,file,decision,note,decided_at,image_sha256"


def test_tables_of_an_earlier_version_have_fewer_columns(tmp_path):
    (tmp_path / "old.csv").write_text("case,decision\na,accept\nb,\n", encoding="utf-8")
    assert read_decision_rows(tmp_path / "old.csv") == [Decision("a", "", "accept"), Decision("b")]


def test_labels_have_a_column_of_their_own(tmp_path):
    rows = [Decision("a", "a.png", "corrected", label="=1"), Decision("b", "b.png", "reject")]
    write_decisions(tmp_path / "decisions.csv", rows)
    assert read_decision_rows(tmp_path / "decisions.csv") == rows
    lines = (tmp_path / "decisions.csv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == [
        "case,file,decision,note,decided_at,image_sha256,label",
        "a,a.png,corrected,,,,'=1",
    ]


def test_two_decisions_about_one_image_are_named(tmp_path):
    (tmp_path / "two.csv").write_text("case,decision\na,accept\na,reject\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"two decisions about a\. Keep one of them"):
        read_decision_rows(tmp_path / "two.csv")


def test_an_unknown_decision_is_named(tmp_path):
    (tmp_path / "odd.csv").write_text("case,decision\na,maybe\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a has the decision 'maybe'\. Expected accept, corrected"):
        read_decision_rows(tmp_path / "odd.csv")
