"""JSON files that segconf writes and reads back: typed, closed, finite, or refused."""

import math
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import Field, Strict, TypeAdapter, ValidationError, create_model

from segconf.config.ranges import Number, OpenSection, Section
from segconf.errors import SegconfError
from segconf.files import MOST_BYTES, described, read_bytes

Record = TypeVar("Record", bound=Section)
Plain = TypeVar("Plain")

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


def read_dataclass(
    path: Path, kind: type[Plain], *, error: type[SegconfError], way_out: str
) -> Plain:
    """Parse a JSON file into a dataclass of text, numbers (null is nan) and tuples of these.

    Args:
        path: the file.
        kind: the class; fields with a default may be missing, others than its fields are left out.
        error: what to raise when the file cannot be used.
        way_out: what to do then.
    """
    schema = _schema_of(kind)  # type: ignore[arg-type]
    record = read_record(path, schema, error=error, way_out=way_out)
    numbers = {name for name, expected in get_type_hints(kind).items() if expected is float}
    values = {field: getattr(record, field) for field in schema.model_fields}
    return kind(**{n: math.nan if n in numbers and v is None else v for n, v in values.items()})


@cache
def _schema_of(kind: Any) -> type[Section]:
    """The schema of a dataclass: numbers are finite, and nothing is converted."""
    types, found = get_type_hints(kind), {}
    for field in fields(kind):
        expected, default = types[field.name], ... if field.default is MISSING else field.default
        if expected is float:
            expected = Number | None
            default = None if isinstance(default, float) and math.isnan(default) else default
        elif expected is int:
            expected = Annotated[int, Strict(), Field(ge=0, lt=2**63)]
        found[field.name] = (expected, default)
    schema: type[Section] = create_model(kind.__name__, __base__=OpenSection, **found)  # type: ignore[call-overload]
    return schema


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
