"""Which images belong together: tables, folders, and what is wrong with them."""

from pathlib import Path

import pytest

from segconf.data.groups import group_of, read_groups

IMAGES = {name: [Path(f"{name}.png")] for name in ("a", "p1/x", "p2/x", "p2/y", "p3/deep/z")}


def groups(tmp_path, text, *, complete=True):
    (tmp_path / "groups.csv").write_text(text)
    return read_groups(tmp_path / "groups.csv", IMAGES, complete=complete)


def test_a_group_is_that_of_the_table_or_of_the_first_folder():
    found = {name: group_of(name, {"p2/y": "lesion 7"}) for name in IMAGES}
    expected = {"a": "a", "p1/x": "p1", "p2/x": "p2", "p2/y": "lesion 7", "p3/deep/z": "p3"}
    assert found == expected


@pytest.mark.parametrize("name", ["p2/y", "p2/y.png", "y", "y.png", "p2\\y.png"])
def test_a_table_may_name_an_image_in_several_ways(tmp_path, name):
    assert groups(tmp_path, f"image,group\n{name},q\n") == ({"p2/y": "q"}, [])


def test_what_is_wrong_with_a_table_is_named(tmp_path):
    found, problems = groups(tmp_path, "image,group\nx.png,q\na,q\na.png,r\nnone,q\ny,\n")
    assert found["a"] == "q"
    assert "x.png: several images of that name; give the path" in problems[0]
    assert "a.png: belongs to two groups, q and r" in problems[1]
    assert "none: no such image" in problems[2]
    assert "y: no such image, or no group" in problems[3]
    assert groups(tmp_path, "image,group\nnone,q\np1/x,q\n", complete=False) == ({"p1/x": "q"}, [])
    assert "no column called group" in groups(tmp_path, "image,patient\na,q\n")[1][0]
    assert read_groups(tmp_path / "absent.csv", IMAGES, complete=True) == ({}, [])
