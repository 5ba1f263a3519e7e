"""JSON files that segconf writes and reads back: typed, closed, finite, or refused."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from segconf.config.schema import Section
from segconf.errors import SegconfError
from segconf.files import MOST_BYTES, described, read_bytes

Record = TypeVar("Record", bound=Section)

_CONTENT: TypeAdapter[Any] = TypeAdapter(Any)
_SHOWN = 3
"""Mistakes of a file that are named."""


def read_record(
    path: Path,
    kind: type[Record],
    *,
    error: type[SegconfError],
    way_out: str,
    limit: int = MOST_BYTES,
) -> Record:
    """Parse a JSON file into a typed object.

    Args:
        path: the file.
        kind: its schema; unknown keys, wrong types and numbers out of range are mistakes.
        error: what to raise when the file cannot be used.
        way_out: what to do then.
        limit: bytes of the file at most.
    """
    try:
        return kind.model_validate_json(read_bytes(path, limit=limit))
    except ValidationError as problem:
        raise error(f"{path}: {mistakes(problem)}. {way_out}") from problem
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({described(problem)}). {way_out}") from problem


def read_json(path: Path, *, limit: int = MOST_BYTES) -> Any:
    """Content of a JSON file of other programs, which has no schema of ours.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too large, nested too deeply, or not JSON.
    """
    return parse_json(read_bytes(path, limit=limit))


def parse_json(content: bytes | str) -> Any:
    """Content of JSON text.

    Raises:
        ValueError: it is nested too deeply, or not JSON.
    """
    try:
        return _CONTENT.validate_json(content)
    except ValidationError as problem:
        raise ValueError(mistakes(problem)) from None


def mistakes(problem: ValidationError) -> str:
    """What is wrong with a record, on one line: each field with its mistake."""
    found = []
    for item in problem.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(part)[:_LONGEST] for part in item["loc"])
        words = item["msg"].removeprefix("Value error, ")
        found.append(f"{place}: {words}" if place else words)
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return "; ".join(found[:_SHOWN]) + more


_LONGEST = 60
"""Characters of a key that are shown."""


def record_text(record: Section) -> str:
    """The content of the file, so that `read_record` gives the record back."""
    return record.model_dump_json(indent=1) + "\n"
