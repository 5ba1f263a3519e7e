"""Tables of numbers: a row is a case, its numbers are an image of one pixel with many channels."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segconf.csv_tables import read_table
from segconf.data.id_lists import ID_COLUMNS
from segconf.data.label_tables import LABEL
from segconf.errors import DataError

GROUP = "group"
SUFFIX = ".csv"
_SHOWN = 10
_WAY_OUT = "Expected a table with a column `label` and columns of numbers."


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """A table.

    Attributes:
        path: of the file.
        names: of the rows, from a column such as id, else their numbers.
        labels: text of the column `label`; empty where it is missing.
        groups: of the rows; empty where nothing is known.
        columns: names of the columns of numbers.
        features: (N, C); nan where a problem is.
        problems: all of them.
    """

    path: Path
    names: tuple[str, ...]
    labels: tuple[str, ...]
    groups: tuple[str, ...]
    columns: tuple[str, ...]
    features: NDArray[np.float32]
    problems: tuple[str, ...]


def read_feature_table(path: Path) -> FeatureTable:
    """Read a table; it is kept until its file changes.

    Raises:
        DataError: it is none, or has no numbers.
    """
    try:
        state = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). {_WAY_OUT}") from None
    return _read(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _read(path: Path, _time: int, _size: int) -> FeatureTable:
    rows = read_table(path, [], error=DataError, way_out=_WAY_OUT)
    header = list(rows[0]) if rows else []
    name = next((column for column in header if column.lower() in ID_COLUMNS), None)
    columns = tuple(c for c in header if c != name and c.lower() not in (LABEL, GROUP))
    if not columns:
        raise DataError(f"{path}: no row, or no column of numbers. {_WAY_OUT}")
    problems: list[str] = []
    names = tuple(row[name].strip() if name else f"{n:06d}" for n, row in enumerate(rows))
    features = np.full((len(rows), len(columns)), math.nan, np.float32)
    for number, row in enumerate(rows):
        for place, column in enumerate(columns):
            value = _number(row[column])
            if value is None:
                shown = row[column].strip()[:40] or "nothing"
                problems.append(f"{path}: row {number + 1}, {column}: {shown} is no number")
            else:
                features[number, place] = value
    problems += _name_problems(path, names)
    return FeatureTable(
        path,
        names,
        _texts(rows, header, LABEL),
        _texts(rows, header, GROUP),
        columns,
        features,
        tuple(problems),
    )


def _number(text: str) -> float | None:
    """A finite number that float32 can hold; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= float(np.finfo(np.float32).max) else None


def _texts(
    rows: Sequence[Mapping[str, str]], header: Sequence[str], wanted: str
) -> tuple[str, ...]:
    column = next((one for one in header if one.lower() == wanted), None)
    return tuple("" if column is None else row[column].strip() for row in rows)


def _name_problems(path: Path, names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    problems = []
    for number, name in enumerate(names, start=1):
        if not name:
            problems.append(f"{path}: row {number} has no name")
        elif name in seen:
            problems.append(f"{path}: {name}: two rows of that name")
        seen.add(name)
    return problems


def features_of(
    path: Path, records: Sequence[int], columns: Sequence[str] = ()
) -> NDArray[np.float32]:
    """Rows of a table as images of one pixel, (N, 1, 1, C) float32.

    Args:
        path: of the table.
        records: numbers of the rows.
        columns: that the table must have, in the order of C; all as they stand when not given.

    Raises:
        DataError: the table has other columns.
    """
    table = read_feature_table(path)
    features = table.features[list(records)]
    if columns:
        features = features[:, _places(table, columns)]
    return features[:, None, None, :]


def _places(table: FeatureTable, wanted: Sequence[str]) -> list[int]:
    """Where columns stand in a table."""
    places = {name: place for place, name in enumerate(table.columns)}
    missing = [name for name in wanted if name not in places]
    unknown = sorted(places.keys() - set(wanted))
    if missing or unknown:
        lists = (("missing", missing), ("unknown", unknown))
        found = [
            f"{kind}: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
            for kind, names in lists
            if names
        ]
        raise DataError(
            f"{table.path}: other columns of numbers than the model was trained with "
            f"({'; '.join(found)}). Give the same columns, in any order."
        )
    return [places[name] for name in wanted]
