"""From defaults, a file and overrides to one checked configuration; every mistake at once."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from segconf.config.schema import ExperimentConfig
from segconf.config.yaml_text import parse_yaml, read_yaml, shown, yaml_text
from segconf.errors import ConfigError
from segconf.files import write_text

EXCLUSIVE = ("data.labeled", "data.labeled_list", "data.labels_from_query")
"""Ways to say the same thing: the later source wins."""
RENAMED = {
    "data.validation_share": "data.validation_fraction",
    "data.test_share": "data.test_fraction",
    "data.resume_labels": "data.labels_from_query",
    "data.accept_as_labels": "data.corrections",
    "data.maps": "data.corrections",
    "data.pseudo_labels": "data.corrections",
    "data.pseudo_labels_folder": "data.corrections",
    "training.average_decay": "training.ema_decay",
    "training.plain_pass": "training.unaugmented_bn_mode",
    "training.features": "training.ood_detector",
}
"""Keys of version 0.1 and their names now."""


def load_config(
    path: Path | str | None = None,
    *,
    layers: Mapping[str, Mapping[str, object]] | None = None,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object] | None = None,
) -> ExperimentConfig:
    """Resolve a configuration; later sources win: defaults, file, layers, overrides, flags.

    Args:
        path: YAML file; only defaults when not given.
        layers: `{"section.key": value}` by where it was given, such as the file of a protocol.
        overrides: `section.key=value`, the value written as in YAML.
        flags: `{"section.key": value}` of the command line; a flag that is None was not given.

    Raises:
        ConfigError: with one line for each mistake of all sources.
    """
    path = None if path is None else Path(path)
    mistakes: list[str] = []
    sources: dict[str, str] = {}
    values: dict[str, Any] = {}
    if path is not None:
        values = read_yaml(path)
        sources = {key: str(path) for key in _flatten(values)}
    for origin, layer in (layers or {}).items():
        for key, value in layer.items():
            _assign(values, key, value)
            sources[key] = origin
    for override in overrides:
        key, separator, text = override.partition("=")
        if not separator or "." not in key:
            mistakes.append(f"set {override}: expected section.key=value")
            continue
        try:
            value = parse_yaml(text)
        except ValueError as error:
            mistakes.append(f"set {override}: {error}")
            continue
        _assign(values, key.strip(), value)
        sources[key.strip()] = "set"
    given = [key for key in EXCLUSIVE if (flags or {}).get(key) is not None]
    if len(given) > 1:
        names = " and ".join(key.partition(".")[2] for key in given)
        mistakes.append(f"command line: {names} exclude each other: give one of them")
    for key, value in (flags or {}).items():
        if value is not None:
            _assign(values, key, value)
            sources[key] = "command line"
    try:
        config = ExperimentConfig.model_validate(values)
    except ValidationError as error:
        mistakes += [_mistake(dict(item), sources, path) for item in error.errors()]
    if mistakes:
        raise ConfigError("\n".join(dict.fromkeys(mistakes)))
    return config


def save_config(config: ExperimentConfig, path: Path, *, given_only: bool = False) -> None:
    """Write the complete configuration, defaults included, so that `load_config` gives it back.

    Args:
        config: what to write.
        path: the file.
        given_only: leave out what was not given, for a run that has not begun: a data set of
            labels may decide it.
    """
    write_text(path, yaml_text(config.model_dump(mode="json", exclude_unset=given_only)))


def _assign(values: dict[str, Any], key: str, value: object) -> None:
    if key in EXCLUSIVE and value is not None:
        for rival in EXCLUSIVE:
            _assign(values, rival, None)
    *sections, name = key.split(".")
    for section in sections:
        inner = values.get(section)
        if not isinstance(inner, dict):
            inner = values[section] = {}
        values = inner
    values[name] = value


def _flatten(values: Mapping[Any, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        keys.append(name)
        if isinstance(value, dict):
            keys += _flatten(value, f"{name}.")
    return keys


def _mistake(error: dict[str, Any], sources: Mapping[str, str], path: Path | None) -> str:
    """One line: where it was given, the key, the value, what is allowed."""
    location = [part for part in error["loc"] if isinstance(part, str)]
    key = ".".join(_known_part(location, unknown=error["type"] == "extra_forbidden"))
    place = next(
        (sources[name] for name in (key, key.rpartition(".")[0]) if name in sources),
        str(path) if path else "configuration",
    )
    if key in RENAMED:
        return f"{place}: {key}: is called {RENAMED[key]} since version 0.2"
    if error["type"] == "extra_forbidden":
        return f"{place}: {key}: unknown key{_suggestion(key)}"
    if error["type"] in {"model_type", "model_attributes_type"}:
        return f"{place}: {key} = {shown(error['input'])}: expected a section with keys"
    problem = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":
        value = "" if isinstance(error["input"], dict) else f" = {shown(error['input'])}"
        subject = f"{key}{value}: " if key else ""  # one between sections names its keys itself
        return f"{place}: {subject}{problem}"
    allowed = _allowed(key)
    return f"{place}: {key} = {shown(error['input'])}: {allowed or problem}"


def _known_part(location: Sequence[str], *, unknown: bool) -> list[str]:
    """The keys of a location, without the names pydantic gives to the members of a union."""
    if unknown:
        return list(location)
    model: type[BaseModel] = ExperimentConfig
    known: list[str] = []
    for part in location:
        field = model.model_fields.get(part)
        if field is None:
            break
        known.append(part)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    return known


def _schema() -> dict[str, dict[str, Any]]:
    """JSON schema of every `section.key`."""
    schema = ExperimentConfig.model_json_schema()
    return {
        f"{section}.{key}": entry
        for section in ExperimentConfig.model_fields
        for key, entry in schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]][
            "properties"
        ].items()
    }


def _suggestion(key: str) -> str:
    keys = _schema()
    if key in ExperimentConfig.model_fields or key in keys:
        return ""
    nearest = difflib.get_close_matches(key, [*keys, *ExperimentConfig.model_fields], 1, 0.6)
    if not nearest:  # the right key in the wrong section
        nearest = [name for name in keys if name.rpartition(".")[2] == key.rpartition(".")[2]]
    if nearest:
        return f"; did you mean {nearest[0]}?"
    section = key.partition(".")[0]
    known = [name for name in keys if name.startswith(f"{section}.")]
    return f"; known are {', '.join(known or ExperimentConfig.model_fields)}"


def _allowed(key: str) -> str:
    """What the schema allows for a key, in words; empty for an unknown key."""
    entry = _schema().get(key)
    return f"expected {_describe(entry)}" if entry else ""


def _describe(entry: Mapping[str, Any]) -> str:
    if "description" in entry or "const" in entry:
        return str(entry.get("description", entry.get("const")))
    if "anyOf" in entry:
        return " or ".join(_describe(option) for option in entry["anyOf"])
    if "enum" in entry:
        return "one of " + ", ".join(map(str, entry["enum"]))
    if entry.get("type") == "array":
        if "prefixItems" not in entry:
            return f"a list, each {_describe(entry['items'])}"
        items = entry["prefixItems"]
        return f"a list of {len(items)}, each {_describe(items[0])}"
    names = {"integer": "a whole number", "number": "a number", "string": "a text"}
    names |= {"boolean": "true or false", "null": "null"}
    bounds = {
        "minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<",
    }  # fmt: skip
    limits = [f"{sign} {entry[name]:g}" for name, sign in bounds.items() if name in entry]
    return " ".join([names.get(str(entry.get("type")), "a value"), " and ".join(limits)]).strip()
