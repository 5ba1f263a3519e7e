"""CSV tables: what a spreadsheet sees, and what is read back."""

import csv
import math
import random

import pytest

from segconf.csv_tables import number_in, read_table, table_text
from segconf.errors import DataError

TEXTS = [
    *("=1+1", "+a", "-a", "@a", "\ta", "\ra", "'a", "'=a", "''a", "'", "=", "-", "--1"),
    *("-1.5", "+3", "1e5", "-inf", "-nan", "a=b", "", " =a", "a,b", 'a"b', "a\nb", "ä", "-1e-3"),
]


def read(path):
    return read_table(path, ["text"], error=DataError, way_out="Write it again.")


def test_no_cell_of_text_is_a_formula_and_all_are_read_back(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(table_text(["text", "x"], [[text, 1] for text in TEXTS]), newline="")
    with path.open(newline="") as file:
        cells = [row[0] for row in csv.reader(file)][1:]
    computed = [c for c in cells if c[:1] in "=+-@\t\r" and c and c not in ("-1.5", "+3", "-1e-3")]
    assert computed == []
    assert [row["text"] for row in read(path)] == TEXTS


def test_random_text_is_read_back(tmp_path):
    generator = random.Random(0)  # noqa: S311 - reproducible, not secret
    texts = ["".join(generator.choices("=+-@\t\r\n',\"a1. ", k=6)) for _ in range(2000)]
    path = tmp_path / "a.csv"
    path.write_text(table_text(["text", "x"], [[text, ""] for text in texts]), newline="")
    assert [row["text"] for row in read(path)] == texts


def test_numbers_stay_numbers():
    assert table_text(["a", "b", "c"], [[-1.5, "-2.5", 3]]) == "a,b,c\n-1.5,-2.5,3\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no column called text"),
        (b"a,b\n1,2\n", "no column called text"),
        (b"text,b\n1\n", "row 1 has 1 cells instead of 2"),
        (b"text\n1,2\n", "row 1 has 2 cells instead of 1"),
        (b"text,text\n1,2\n", "same name"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"text\n" + b"x" * 200_000 + b"\n", "field larger"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, content, words):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError, match=words) as refused:
        read(tmp_path / "a.csv")
    assert str(refused.value).startswith(str(tmp_path / "a.csv"))
    assert str(refused.value).endswith("Write it again.")


def test_a_missing_table_and_a_folder_are_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "a.csv")
    with pytest.raises(DataError, match="a folder, not a file"):
        read(tmp_path)


def test_cells_are_finite_numbers():
    assert number_in({"a": " -1.5 "}, "a") == -1.5
    assert math.isnan(number_in({"a": ""}, "a"))
    for text in ("inf", "nan", "x", "1e999", "9" * 5000):
        with pytest.raises(ValueError, match=r"."):
            number_in({"a": text}, "a")
