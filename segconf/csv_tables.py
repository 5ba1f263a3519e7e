"""CSV tables: written so that spreadsheets show text as text, read back exactly, or refused."""

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from segconf.errors import SegconfError
from segconf.files import MOST_BYTES, described, read_text

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""A cell that begins with one of these is a formula to a spreadsheet, or hides one behind it."""
_SPECIAL = re.compile('[",\r\n]')
_QUOTE = "'"
"""Before a cell, it tells a spreadsheet that text follows."""


def table_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The content of a CSV file; `read_table` gives the rows back as text.

    Numbers stay as they are; text that a spreadsheet would compute gets an apostrophe in front.
    """
    return "".join(table_line(row) for row in (columns, *rows))


def table_line(row: Sequence[object]) -> str:
    """A line of `table_text`, for tables that are written piece by piece."""
    cells = [_cell(value) for value in row]
    return (",".join(cells) if cells != [""] else '""') + "\n"  # an empty line is no row


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    if isinstance(value, str) and text.startswith(_FORMULA) and not _is_number(text):
        text = _QUOTE + text
    # The csv module leaves a carriage return bare, and takes it for the end of the line.
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and not text.startswith(("\t", "\r"))
    except ValueError:
        return False


def plain_cell(text: str) -> str:
    """What stood in a cell before it was written; cells of other programs stay as they are."""
    rest = text[1:]
    is_escaped = text[:1] == _QUOTE and rest.startswith(_FORMULA) and not _is_number(rest)
    return rest if is_escaped else text


def read_table(
    path: Path,
    columns: Sequence[str],
    *,
    error: type[SegconfError],
    way_out: str,
    limit: int = MOST_BYTES,
) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, all cells as text.

    Args:
        path: the file, UTF-8.
        columns: that must be there; others are read too.
        error: what to raise when the file cannot be used.
        way_out: what to do then.
        limit: bytes of the file at most.
    """
    try:
        return parse_table(read_text(path, limit=limit), columns)
    except FileNotFoundError:
        raise error(f"{path}: no such file. {way_out}") from None
    except (OSError, ValueError) as problem:
        raise error(f"{path}: not a readable table ({described(problem)}). {way_out}") from problem


def parse_table(text: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of the text of a CSV file; see `read_table`.

    Raises:
        ValueError: it is not a table with these columns, or a row has other ones.
    """
    header, *rows = parse_rows(text) or [[]]
    names = [name.strip() for name in header]
    missing = [name for name in columns if name not in names]
    if missing:
        raise ValueError(f"no column called {' or '.join(missing)}")
    if len(set(names)) < len(names):
        raise ValueError("two columns have the same name")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ValueError(f"row {number} has {len(row)} cells instead of {len(names)}")
    return [dict(zip(names, row, strict=True)) for row in rows]


def parse_rows(text: str) -> list[list[str]]:
    """Cells of the text of a CSV file, with or without a header; empty lines are left out.

    Raises:
        ValueError: it is none.
    """
    try:
        found = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as problem:
        raise ValueError(str(problem)) from None
    return [[plain_cell(cell) for cell in row] for row in found]


def number_in(row: Mapping[str, str], column: str) -> float:
    """A cell as a finite number; nan where it is empty.

    Raises:
        ValueError: it holds something else.
    """
    text = row[column].strip()
    if not text:
        return math.nan
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{column} is {text[:40]}, not a finite number")
    return value
