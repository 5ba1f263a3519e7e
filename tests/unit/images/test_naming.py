"""Names of cases: different from each other on every file system, and the plain ones unchanged."""

import os
import unicodedata

import pytest

from segconf.images.naming import LONGEST, case_names, name_problem, printable


def keys(names):
    """Names as macOS and Windows see them."""
    return {unicodedata.normalize("NFD", name).lower() for name in names}


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a.png", "b.jpg"], ["a", "b"]),
        (["p1/a.png", "p2/a.png"], ["p1/a", "p2/a"]),
        (["a.jpg", "a.png", "b.png"], ["a.jpg", "a.png", "b"]),
        (["a.jpg", "a.png", "a.jpg.png"], ["a.jpg", "a.png", "a.jpg.png"]),
        (["a.nii.gz", "a.nii"], ["a.nii.gz", "a.nii"]),
        ([".a.png"], ["_a"]),
        (["ä ö.png"], ["ä ö"]),
    ],
)
def test_names_are_those_of_the_files_where_they_can_be(files, names):
    assert case_names(files) == names


@pytest.mark.parametrize(
    "files",
    [
        ["A.png", "a.png"],
        ["A.png", "a.jpg", "a.png", "A.jpg", "a.JPG"],
        ["a.jpg", "a.png", "a.jpg.png", "A.JPG.png"],
        [unicodedata.normalize(form, "ä.png") for form in ("NFC", "NFD")],
        [".a.png", "_a.png"],
        [os.fsdecode(b"\xff.png"), os.fsdecode(b"\xfe.png"), "\ufffd.png"],
        ["x" * 251 + ".png", "x" * 250 + "y.png", "x" * 250 + "Y.jpg"],
        ["ä" * 120 + ".png", "ä" * 121 + ".png"],
        ["C:a.png", "C_a.png"],
        ["x.png/y.png", "x.png_/y.png", "x.jpg", "x.png_/y.jpg"],
    ],
)
def test_no_two_images_share_a_name(files):
    names = case_names(files)
    assert len(keys(names)) == len(files)
    for name in names:
        name.encode()
        assert all(len(part.encode()) <= LONGEST + 10 for part in name.split("/"))
        assert not any(part.startswith(".") for part in name.split("/"))


def test_no_result_stands_in_the_place_of_a_folder():
    """`masks/x.png` of `x.jpg`, and the folder of the results of `x.png/y.png`."""
    first, second = case_names(["x.jpg", "x.png/y.png"])
    assert second.partition("/")[0] != f"{first}.png"


def test_names_that_are_no_text_are_named_as_a_problem():
    odd = os.fsdecode(b"a\xff.png")
    assert name_problem("ä.png") == ""
    assert name_problem(odd) == "a\ufffd.png: the name is not valid UTF-8. Rename the file."
    assert printable("ä") == "ä"
