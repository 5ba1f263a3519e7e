"""Small JSON files that segconf writes and reads back: typed, closed, finite, or refused."""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from segconf.config.schema import Section
from segconf.errors import SegconfError

MOST_BYTES = 10_000_000
"""A record holds a few numbers: a larger file is not one."""

Record = TypeVar("Record", bound=Section)


def read_record(
    path: Path, kind: type[Record], *, error: type[SegconfError], way_out: str
) -> Record:
    """Parse a JSON file into a typed object.

    Args:
        path: the file.
        kind: its schema; unknown keys, wrong types and numbers out of range are mistakes.
        error: what to raise when the file cannot be used.
        way_out: what to do then.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise error(f"{path}: larger than {MOST_BYTES} bytes. {way_out}")
        return kind.model_validate_json(path.read_bytes())
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise error(f"{path}: cannot be read ({reason}). {way_out}") from problem
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(map(str, first["loc"]))
        words = f"{place}: {first['msg']}" if place else first["msg"]
        raise error(f"{path}: {words}. {way_out}") from problem


def record_text(record: Section) -> str:
    """The content of the file, so that `read_record` gives the record back."""
    return record.model_dump_json(indent=1) + "\n"
