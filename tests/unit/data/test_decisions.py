"""Names of a review matched with the cases of a data set."""

from pathlib import Path

import pytest

from segconf.data.cases import Case
from segconf.data.decisions import decided_cases
from segconf.errors import DataError

CASES = (
    Case("a/one", Path("images/a/one.png")),
    Case("b/one", Path("images/b/one.png")),
    Case("b/two", Path("images/b/two.png")),
    Case("scan_z000", Path("images/scan.nii.gz"), slice_index=0),
    Case("scan_z001", Path("images/scan.nii.gz"), slice_index=1),
)


def matched_ids(*names):
    matched, unmatched = decided_cases(dict.fromkeys(names, "edit"), CASES)
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
