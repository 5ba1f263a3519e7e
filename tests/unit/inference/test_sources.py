"""Which images are found, and what their results are called."""

import ntpath
from pathlib import Path

import pytest

from segconf.errors import ConfigError, DataError
from segconf.inference.sources import Shard, find_images
from tests.tiny_models import disc, write_picture


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def names(sources):
    return [(source.case, source.file) for source in sources.items]


def test_a_folder_is_searched_with_its_subfolders(tmp_path):
    touch(tmp_path, "b.PNG", "a/c d ü.jpg", "a/v.nii.gz", "notes.csv", ".hidden.png", ".x/y.png")
    touch(tmp_path, "a/b_superpixels.png", "maps/overlays/b.png")

    found = find_images([tmp_path], exclude=tmp_path / "maps")

    assert names(found) == [("a/c d ü", "a/c d ü.jpg"), ("a/v", "a/v.nii.gz"), ("b", "b.PNG")]
    assert found.root == tmp_path
    assert {path.name for path in found.left_out} == {"notes.csv", "b_superpixels.png"}


def test_images_that_differ_in_their_suffix_keep_it(tmp_path):
    touch(tmp_path, "a.png", "a.jpg", "b.png")
    expected = [("a.jpg", "a.jpg"), ("a.png", "a.png"), ("b", "b.png")]
    assert names(find_images([tmp_path])) == expected


def test_files_and_lists_are_relative_to_what_they_share(tmp_path):
    touch(tmp_path, "x/1.png", "y/1.png", "z/2.png")
    assert names(find_images([tmp_path / "x/1.png"])) == [("1", "1.png")]
    (tmp_path / "list.txt").write_text("x/1.png\n\n  y/1.png\n", encoding="utf-8")
    found = find_images([tmp_path / "list.txt"])
    assert names(found) == [("x/1", "x/1.png"), ("y/1", "y/1.png")]


@pytest.mark.parametrize(
    ("name", "message"), [("missing", "no such file"), ("a.doc", "unknown image"), ("", "no image")]
)
def test_nothing_to_predict_is_an_error(tmp_path, name, message):
    touch(tmp_path, "a.doc")
    with pytest.raises(DataError, match=message):
        find_images([tmp_path / name])


def test_images_on_two_drives_are_refused(tmp_path, monkeypatch):
    touch(tmp_path, "a.png")
    drives = ["C:\\images", "D:\\images"]
    monkeypatch.setattr("os.path.commonpath", lambda _: ntpath.commonpath(drives))
    with pytest.raises(DataError, match="several drives have no folder in common"):
        find_images([tmp_path])


def test_shards_share_everything_out(tmp_path):
    touch(tmp_path, *(f"{number}.png" for number in range(7)))
    items = find_images([tmp_path]).items
    shards = [Shard.parse(f"{number}/3").own(items) for number in (1, 2, 3)]
    assert [len(shard) for shard in shards] == [3, 2, 2]
    assert sorted(source.case for shard in shards for source in shard) == list("0123456")
    for text in ("0/3", "4/3", "1", "a/b", "-1/2"):
        with pytest.raises(ConfigError, match="shard "):
            Shard.parse(text)


def test_names_are_unique_whatever_the_files_are_called(tmp_path):
    for name in ("a.jpg", "a.png", "a.jpg.png", "b.png", "b.png.png", "c.png"):
        write_picture(tmp_path / name, disc(40, 40), format="png")
    cases = [source.case for source in find_images([tmp_path]).items]
    assert len(set(cases)) == 6
    assert sorted(cases) == ["a.jpg", "a.jpg.png", "a.png", "b", "b.png.png", "c"]


def test_maps_of_an_earlier_prediction_are_no_input(tmp_path):
    write_picture(tmp_path / "a.png", disc(40, 40))
    for part in ("masks", "confidence", "overlays"):
        write_picture(tmp_path / "old" / part / "a.png", disc(40, 40))
    (tmp_path / "old/run.json").write_text("{}")
    write_picture(tmp_path / "labels/review/images/a.png", disc(40, 40))
    for name in ("run.json", "predictions.csv"):
        (tmp_path / "labels" / name).write_text("{}")
    assert [source.case for source in find_images([tmp_path]).items] == ["a"]


def test_groups_of_folders_volumes_and_tables(tmp_path):
    names = ["p1/a.png", "p1/b.png", "p2/deep/c.png", "d.png", "v.nii.gz", "v.png"]
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()

    def groups():
        return {source.file: source.group for source in find_images([tmp_path / "in"]).items}

    expected = dict(zip(names, ["p1", "p1", "p2", "d", "v.nii.gz", "v.png"], strict=True))
    assert groups() == expected
    (tmp_path / "groups.csv").write_text("image,group\np1/b.png,x\nd,x\nother.png,y\n")
    assert groups() == expected | {"p1/b.png": "x", "d.png": "x"}
    (tmp_path / "in/groups.csv").write_text("image,group\nv.nii.gz,y\n")
    assert groups() == expected | {"v.nii.gz": "y"}
    (tmp_path / "in/groups.csv").write_text("image\nd\n")
    with pytest.raises(DataError, match=r"groups\.csv: .*group.* move it elsewhere"):
        groups()
