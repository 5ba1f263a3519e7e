"""YAML that people write: plain values only, bounded, and a mistake is a mistake with its line."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from segconf.errors import ConfigError
from segconf.files import described, read_text

MOST_BYTES = 1_000_000
"""An experiment file has a few hundred lines."""
MOST_VALUES = 20_000
"""Values of a file after its aliases are followed."""
DEEPEST = 20
"""Levels of lists and mappings within each other."""
_TAGS = ("null", "bool", "int", "float", "str", "seq", "map")
_NUMBERS = ("int", "float")
_INTEGERS = 2**63
_PREFIX = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Safe YAML of plain values, in which `1e-4` is a number and a repeated key is a mistake."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        """A node of the file; YAML's own knows no limit on the depth."""
        self._depth += 1
        if self._depth > DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "nested too deeply", mark)
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        return node

    def construct_document(self, node: yaml.Node) -> Any:
        """The values of the file, unless aliases make them too many."""
        _count_values(node, {})
        return super().construct_document(node)

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 - the signature is PyYAML's
    ) -> dict[Any, Any]:
        """Mapping of a node; YAML's default would let the last of two equal keys win."""
        scalars = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        counts = Counter(key.value for key in scalars)
        for key in scalars:
            if counts[key.value] > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key '{key.value}' is given twice", key.start_mark
                )
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """A number; YAML would take 12:30 for 750, and knows no limit on the digits."""
        kind = node.tag.removeprefix(_PREFIX)
        convert = self.construct_yaml_int if kind == "int" else self.construct_yaml_float
        try:
            value: int | float | None = convert(node)
        except ValueError:
            value = None
        if value is None or ":" in node.value or (kind == "int" and abs(value) >= _INTEGERS):
            words = f"{shown(node.value)} is not a number that can be used"
            raise yaml.constructor.ConstructorError(None, None, words, node.start_mark)
        return value


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_PREFIX) in _TAGS
}
_Loader.yaml_constructors |= {f"{_PREFIX}{kind}": _Loader.construct_number for kind in _NUMBERS}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag.removeprefix(_PREFIX) != "timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Dumper(yaml.SafeDumper):
    """Plain values, in which text that `_Loader` would take for a number has quotes."""


for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver(
        f"{_PREFIX}float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )


def _count_values(node: yaml.Node, known: dict[int, int]) -> int:
    """Values below a node, those behind aliases each time that they appear."""
    if id(node) in known:
        count = known[id(node)]
    else:
        known[id(node)] = MOST_VALUES + 1  # until it is counted: whoever meets itself is too large
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inner = node.value
        elif isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        count = 1 + sum(_count_values(part, known) for part in inner)
        known[id(node)] = count
    if count > MOST_VALUES:
        problem = f"aliases make more than {MOST_VALUES} values of it"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return count


def parse_yaml(text: str) -> Any:
    """The value of a text.

    Raises:
        ValueError: it is not YAML of plain values, on one line.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - derives from SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(_one_line(error)) from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(described(error)) from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Content of a file; an empty one holds nothing.

    Raises:
        ConfigError: when it cannot be read, or is not a mapping.
    """
    try:
        text = read_text(path, limit=MOST_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file. Give an existing YAML file.") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({described(error)}). Give a YAML file."
        ) from None
    try:
        content = parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected sections such as `training:`, found {shown(content)}.")
    return content


def yaml_text(values: object) -> str:
    """The content of a file, so that `read_yaml` gives the values back."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def shown(value: object) -> str:
    """A value for a message: at most a line of it."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


_LONGEST = 100


def _one_line(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())
