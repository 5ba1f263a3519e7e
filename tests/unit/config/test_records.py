"""JSON files that were damaged: the file, the field and the way out."""

import os

import pytest

from segconf.config.ranges import Count, Number, Section
from segconf.config.records import parse_json, read_record, record_text
from segconf.errors import DataError


class Inner(Section):
    value: Number


class Outer(Section):
    name: str
    count: Count = 1
    inner: tuple[Inner, ...] = ()


WHOLE = Outer(name="ä", inner=(Inner(value=1.5),))
DAMAGED = {
    b"": "EOF",
    b"{": "EOF",
    b"[]": "valid dictionary|object",
    b"null": "object",
    b"\xff\xfe": "JSON",
    b'{"name": 1}': "name: .*string",
    b'{"count": 2}': "name: Field required",
    b'{"name": "a", "count": 0}': "count: .*greater than or equal to 1",
    b'{"name": "a", "count": 1.5}': "count: ",
    b'{"name": "a", "count": ' + b"9" * 5000 + b"}": "out of range|number",
    b'{"name": "a", "inner": [{"value": NaN}]}': r"inner\.0\.value: .*finite",
    b'{"name": "a", "inner": [{"value": 1e999}]}': r"inner\.0\.value: .*finite",
    b'{"name": "a", "inner": [{"value": "1"}]}': r"inner\.0\.value: ",
    b'{"name": "a", "other": 1}': "other: Extra",
    b'{"name": ' + b"[" * 100_000: "recursion",
    b'{"name": "\\ud800"}': "JSON",
}


def read(path):
    return read_record(path, Outer, error=DataError, way_out="Write it again.", limit=1_000_000)


def test_a_record_is_read_back(tmp_path):
    (tmp_path / "a.json").write_text(record_text(WHOLE), encoding="utf-8")
    assert read(tmp_path / "a.json") == WHOLE


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_record_names_file_field_and_way_out(tmp_path, content):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=DAMAGED[content]) as refused:
        read(tmp_path / "a.json")
    assert str(refused.value).startswith(f"{tmp_path / 'a.json'}: ")
    assert str(refused.value).endswith(". Write it again.")
    assert "\n" not in str(refused.value)


def test_a_record_that_is_no_file_or_too_large_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(b" " * 1_000_001)
    for path in (tmp_path, tmp_path / "missing", tmp_path / "a.json"):
        with pytest.raises(DataError, match="cannot be read"):
            read(path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
def test_a_named_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(DataError, match="a named pipe, not a file"):
        read(tmp_path / "a.json")


def test_json_of_others_is_bounded():
    assert parse_json('{"a": [1, null, "x"]}') == {"a": [1, None, "x"]}
    for text in ("[" * 100_000, "1" * 5000, "{", ""):
        with pytest.raises(ValueError, match="JSON"):
            parse_json(text)
