"""Data sets of labels: class folders, tables of labels or numbers; every mistake at once."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from segconf.config.schema import DataConfig
from segconf.data.cache import PixelCache
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.data.feature_tables import features_of
from segconf.data.preprocessing import Preprocessing
from segconf.data.splits import split_cases
from segconf.errors import DataError
from tests.conftest import COLOURS, write_classes, write_folder

NOTHING = FindOptions(0, 0)


def picture(path, value=0, size=(4, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((*size, 3), value, np.uint8)).save(path)


def labels_of(found, part="training"):
    return {
        c.id: None if c.label is None else found.class_names[c.label] for c in found.parts()[part]
    }


def write_images(root, names):
    for number, name in enumerate(names):
        picture(root / "images" / f"{name}.png", number)


class TestClassFolders:
    def test_the_folder_is_the_label(self, tmp_path):
        root = write_classes(tmp_path / "set", {"train": 3, "val": 1, "test": 2})
        found = find_cases(str(root))
        assert (found.task, found.class_names) == ("classification", COLOURS)
        assert [len(part) for part in found.parts().values()] == [9, 3, 6]
        assert labels_of(found)["green/001"] == "green"
        assert labels_of(found, "test")["test/red/000"] == "red"
        assert not found.problems
        assert not found.held_out
        assert {case.group for case in found.training} == {case.id for case in found.training}

    def test_parts_that_are_missing_are_held_out_class_by_class(self, tmp_path):
        root = write_classes(tmp_path / "set", {"train": 10})
        found = find_cases(str(root), options=FindOptions(0.2, 0.3))
        counts = [Counter(labels_of(found, part).values()) for part in found.parts()]
        assert counts == [dict.fromkeys(COLOURS, n) for n in (5, 2, 3)]
        assert found.held_out == {"validation", "test"}

    def test_images_without_a_class(self, tmp_path):
        root = write_classes(tmp_path / "set", {"train": 2, "val": 1, "test": 1})
        picture(root / "train/unlabeled/a.png")
        found = find_cases(str(root))
        assert labels_of(found)["unlabeled/a"] is None
        assert found.class_names == COLOURS

    def test_every_problem_at_once(self, tmp_path):
        root = write_classes(tmp_path / "set", {"train": 2, "test": 1})
        (root / "train/empty").mkdir()
        picture(root / "train/loose.png")
        picture(root / "test/violet/a.png")
        (root / "train/red/notes.doc").write_text("no image")
        text = "\n".join(find_cases(str(root), options=NOTHING).problems)
        assert f"{root}/train/empty: a class without any image" in text
        assert f"{root}/train/loose.png: lies beside the folders of the classes" in text
        assert "test/violet/a: the label 'violet' is no class (blue, empty, green, red)" in text
        assert "notes.doc: not a supported image format" in text

    def test_one_class_only(self, tmp_path):
        root = write_classes(tmp_path / "set", {"train": 2}, names=("red",))
        (problem,) = find_cases(str(root), options=NOTHING).problems
        assert "one class only (red)" in problem

    def test_more_classes_than_8_bits_can_number(self, tmp_path):
        for number in range(256):
            picture(tmp_path / f"train/{number:03d}/a.png", size=(1, 1))
        (problem,) = find_cases(str(tmp_path), options=NOTHING).problems
        assert "256 classes; segconf can tell 255 apart" in problem

    def test_the_table_of_groups_beside_the_parts_counts(self, tmp_path):
        root = write_classes(tmp_path / "set", {"train": 2, "val": 1, "test": 1})
        (root / "groups.csv").write_text("image,group\nred/000.png,anna\nblue/000.png,anna\n")
        groups = {case.id: case.group for case in find_cases(str(root)).training}
        assert (groups["red/000"], groups["blue/000"], groups["red/001"]) == (
            *("anna", "anna", "red/001"),
        )


class TestLabelTables:
    def test_a_column_of_labels(self, tmp_path):
        write_images(tmp_path, "abc")
        (tmp_path / "labels.csv").write_text("image,label\na.png,cat\nb,dog\nc,\n")
        found = find_cases(str(tmp_path), options=NOTHING)
        assert found.class_names == ("cat", "dog")
        assert labels_of(found) == {"a": "cat", "b": "dog", "c": None}
        assert not found.problems

    def test_an_image_that_the_table_does_not_list_is_unlabeled(self, tmp_path):
        write_images(tmp_path, "abc")
        (tmp_path / "labels.csv").write_text("image,label\na,cat\nb,dog\n")
        assert labels_of(find_cases(str(tmp_path), options=NOTHING))["c"] is None

    def test_a_column_per_class(self, tmp_path):
        write_images(tmp_path, "abcd")
        text = "image_id,melanoma,keratosis\na,1.0,0.0\nb,0,1\nc,0,0\nd,,\n"
        (tmp_path / "labels.csv").write_text(text)
        found = find_cases(str(tmp_path), options=NOTHING)
        assert found.class_names == ("other", "melanoma", "keratosis")
        expected = {"a": "melanoma", "b": "keratosis", "c": "other", "d": None}
        assert labels_of(found) == expected
        named = FindOptions(0, 0, class_names=("melanoma", "nevus", "keratosis"))
        assert labels_of(find_cases(str(tmp_path), options=named))["c"] == "nevus"

    def test_parts_with_tables_of_their_own(self, tmp_path):
        for part in ("", "val", "test"):
            write_images(tmp_path / part, "ab")
            (tmp_path / part / "labels.csv").write_text("image,label\na,cat\nb,dog\n")
        found = find_cases(str(tmp_path))
        assert labels_of(found, "validation") == {"val/a": "cat", "val/b": "dog"}

    def test_every_problem_at_once(self, tmp_path):
        write_images(tmp_path, ["a", "b", "p/x", "q/x"])
        rows = ["a,cat", "a.png,dog", "b,dog", "b,dog", "ghost,cat", "x,cat", ",cat"]
        (tmp_path / "labels.csv").write_text("\n".join(["image,label", *rows]) + "\n")
        text = "\n".join(find_cases(str(tmp_path), options=NOTHING).problems)
        assert "a.png: two rows for one image (also a)" in text
        assert "b: two rows for one image" in text
        assert "ghost: a label for an image that is not there" in text
        assert "x: several images of that name; give the path" in text
        assert "a row without an image" in text
        named = FindOptions(0, 0, class_names=("cat", "bird"))
        text = "\n".join(find_cases(str(tmp_path), options=named).problems)
        assert "b: the label 'dog' is no class (cat, bird)" in text

    @pytest.mark.parametrize(
        ("row", "problem"),
        [("a,1,1", "belongs to 2 classes"), ("a,2,0", "x is 2, expected 0 or 1"), ("a,b,0", "a: ")],
    )
    def test_a_row_that_names_no_class(self, tmp_path, row, problem):
        write_images(tmp_path, "ab")
        (tmp_path / "labels.csv").write_text(f"image,x,y\n{row}\nb,0,1\n")
        assert problem in find_cases(str(tmp_path), options=NOTHING).problems[0]

    @pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "image\na\n", "image,label\na\n"])
    def test_no_table_of_labels(self, tmp_path, text):
        write_images(tmp_path, "a")
        (tmp_path / "labels.csv").write_text(text)
        with pytest.raises(DataError, match=r"labels\.csv: .*Expected the columns image and label"):
            find_cases(str(tmp_path))

    def test_a_folder_with_masks_and_labels_is_for_segmentation_unless_asked(self, tmp_path):
        root = write_folder(tmp_path / "discs", 4)
        (root / "labels.csv").write_text("image,label\ncase_000,x\ncase_001,y\n")
        assert find_cases(str(root), options=NOTHING).task == "segmentation"
        asked = FindOptions.of(DataConfig(task="classification", test_fraction=0.0))
        assert find_cases(str(root), options=asked).task == "classification"
        (root / "labels.csv").unlink()
        with pytest.raises(DataError, match="this is a folder for segmentation"):
            find_cases(str(root), options=asked)

    def test_diagnoses_of_isic(self, tmp_path):
        root = tmp_path / "isic2017"
        for part, names in (("Training", "abc"), ("Validation", "d"), ("Test_v2", "e")):
            for name in names:
                picture(root / f"ISIC-2017_{part}_Data" / f"ISIC_{name}.jpg")
        table = tmp_path / "isic2017_part3/labels.csv"
        table.parent.mkdir()
        rows = ["a,1,0", "b,0,1", "c,0,0", "d,0,0", "e,1,0"]
        lines = ["image_id,melanoma,seborrheic_keratosis", *(f"ISIC_{row}" for row in rows)]
        table.write_text("\n".join(lines) + "\n")
        found = find_cases("isic", root, options=FindOptions(task="classification"))
        assert found.class_names == ("nevus", "melanoma", "seborrheic_keratosis")
        assert list(labels_of(found).values()) == ["melanoma", "seborrheic_keratosis", "nevus"]
        assert labels_of(found, "test") == {"ISIC_e": "melanoma"}
        assert not found.problems


class TestFeatureTables:
    def write(self, path, rows, header="id,age,dose,label"):
        path.write_text("\n".join([header, *rows]) + "\n")
        return path

    def test_rows_are_cases_and_numbers_their_only_pixel(self, tmp_path):
        path = self.write(tmp_path / "t.csv", ["a,1,2.5,x", "b,-3,4e2,y", "c,0,0,"])
        found = find_cases(str(path), options=NOTHING)
        assert (found.task, found.columns, found.size) == (
            *("classification", ("age", "dose"), (1, 1)),
        )
        assert labels_of(found) == {"a": "x", "b": "y", "c": None}
        cache = PixelCache(path, Preprocessing((1, 1), channels=2, task="classification"))
        images = cache.images(found.training[::-1], label="training")
        assert images.dtype == np.float32
        assert images.tolist() == [[[[0, 0]]], [[[-3, 400]]], [[[1, 2.5]]]]
        assert cache.masks(found.training[:2], label="training").tolist() == [[[0]], [[1]]]

    def test_columns_are_found_by_their_names(self, tmp_path):
        path = self.write(tmp_path / "t.csv", ["1,a,x,2", "3,b,y,4"], header="dose,id,label,age")
        assert features_of(path, [1, 0]).tolist() == [[[[3, 4]]], [[[1, 2]]]]
        assert features_of(path, [1, 0], ["age", "dose"]).tolist() == [[[[4, 3]]], [[[2, 1]]]]
        with pytest.raises(DataError, match=r"t\.csv: .*\(missing: weight; unknown: age\)"):
            features_of(path, [0], ["dose", "weight"])

    def test_every_problem_at_once(self, tmp_path):
        rows = ["a,nan,1,x", "b,,1,y", "c,old,1,y", "a,1,1,x", "d,1e99,1,x", ",1,1,x"]
        path = self.write(tmp_path / "features.csv", rows)
        text = "\n".join(find_cases(str(tmp_path), options=NOTHING).problems)
        for words in (
            *("row 1, age: nan is no number", "row 2, age: nothing is no number"),
            *("row 3, age: old is no number", "row 5, age: 1e99 is no number"),
            *("a: two rows of that name", "row 6 has no name"),
        ):
            assert f"{path}: {words}" in text

    def test_a_table_without_numbers(self, tmp_path):
        path = self.write(tmp_path / "t.csv", ["a,x"], header="id,label")
        with pytest.raises(DataError, match="no column of numbers"):
            find_cases(str(path))


def test_labels_are_balanced_over_classes_and_nested(tmp_path):
    root = write_classes(tmp_path / "set", {"train": 4, "val": 1, "test": 1})
    for number in range(3):
        (root / f"train/red/{number:03d}.png").unlink()
    found = find_cases(str(root))
    chosen = []
    for labeled in range(3, 10):
        split = split_cases(found, labeled=labeled, labeled_list=None, seed=5)
        counts = Counter(found.class_names[case.label] for case in split.labeled)
        assert sum(counts.values()) == labeled
        assert counts["red"] == 1  # there are no more
        assert abs(counts["blue"] - counts["green"]) <= 1
        assert all(case.label is None for case in split.unlabeled)
        chosen.append({case.id for case in split.labeled})
    assert all(small < large for small, large in pairwise(chosen))
    with pytest.raises(DataError, match=r"labeled = 2: .* has 3 classes, and each needs a label"):
        split_cases(found, labeled=2, labeled_list=None, seed=5)
