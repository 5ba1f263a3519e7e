"""Ways to damage a file: its bytes, what kind of file it is, and what its text says."""

import json
import os
import random
from pathlib import Path

ODD_VALUES = (
    *(None, True, "", "x", "../../../etc/passwd", "\x00", "=1+1", -1, 0, 0.5, 1e308, 10**400),
    *(float("nan"), float("inf"), [], {}, [[]], [None], {"a": {}}, "9" * 5000, list(range(50))),
)


def _flipped(content, chance):
    damaged = bytearray(content)
    for _ in range(8):
        if damaged:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def _cut_out(content, chance):
    start = chance.randrange(max(1, len(content)))
    return content[:start] + content[start + 1 + chance.randrange(64) :]


BYTES = {
    "empty": lambda _content, _chance: b"",
    "one-byte": lambda content, _chance: content[:1],
    "half": lambda content, _chance: content[: len(content) // 2],
    "without-end": lambda content, _chance: content[:-1],
    "flipped": _flipped,
    "flipped-begin": lambda content, chance: _flipped(content[:64], chance) + content[64:],
    "cut-out": _cut_out,
    "garbage": lambda _content, chance: chance.randbytes(300),
    "zeros": lambda content, _chance: bytes(min(len(content), 1 << 20)),
    "utf-16": lambda content, _chance: content.decode("latin-1").encode("utf-16"),
    "latin-1": lambda _content, _chance: "größe: ä\n".encode("latin-1"),
    "mark": lambda content, _chance: b"\xef\xbb\xbf" + content,
    "twice": lambda content, _chance: content + content,
    "nul-at-end": lambda content, _chance: content + b"\x00\x00",
    "html": lambda _content, _chance: b"<html><body>404 not found</body></html>\n",
    "long-line": lambda _content, _chance: b"a" * 2_000_000,
    "nested": lambda _content, _chance: b"[" * 200_000,
    "nested-keys": lambda _content, _chance: b'{"a":' * 50_000,
    "digits": lambda _content, _chance: b"9" * 20_000,
}
"""Functions of the content and of a random generator that give the new content."""


def damaged_bytes(name, path, chance):
    """Rewrite a file in one of the ways of `BYTES`."""
    path.write_bytes(BYTES[name](path.read_bytes(), chance))


def _missing(path):
    path.unlink()


def _folder(path):
    path.unlink()
    path.mkdir()


def _fifo(path):
    path.unlink()
    os.mkfifo(path)


def _linked(target):
    def make(path):
        path.unlink()
        path.symlink_to(target if target else path.name)

    return make


KINDS = {
    "missing": _missing,
    "a-folder": _folder,
    "a-fifo": _fifo,
    "a-dangling-link": _linked("nowhere/at/all"),
    "a-link-to-itself": _linked(""),
    "an-endless-device": _linked("/dev/zero"),
    "an-empty-device": _linked("/dev/null"),
}
"""Functions that put something else in the place of a file."""


def odd_json(path, chance):
    """Change one value somewhere in a JSON file: another value, none, or one too many."""
    values = json.loads(path.read_text(encoding="utf-8"))
    places = list(_places(values))
    where, key = chance.choice(places)
    match chance.randrange(6):
        case 0 if isinstance(where, dict):
            del where[key]
        case 1 if isinstance(where, dict):
            where[f"{key} "] = chance.choice(ODD_VALUES)
        case 2 if isinstance(where, list):
            where.append(chance.choice(ODD_VALUES))
        case _:
            where[key] = chance.choice(ODD_VALUES)
    path.write_text(json.dumps(values), encoding="utf-8")


def _places(values):
    """Containers and keys of everything in nested lists and dictionaries."""
    keys = values.keys() if isinstance(values, dict) else range(len(values))
    for key in list(keys):
        yield values, key
        if isinstance(values[key], dict | list):
            yield from _places(values[key])


def _replaced_cell(text):
    def change(lines, chance):
        row = chance.randrange(1, len(lines)) if len(lines) > 1 else 0
        cells = lines[row].split(",")
        cells[chance.randrange(len(cells))] = text
        lines[row] = ",".join(cells)

    return change


TABLES = {
    "no-header": lambda lines, _chance: lines.pop(0),
    "header-only": lambda lines, _chance: lines.__delitem__(slice(1, None)),
    "header-twice": lambda lines, _chance: lines.insert(1, lines[0]),
    "ragged": lambda lines, _chance: lines.append("a,b"),
    "open-quote": lambda lines, _chance: lines.append('"a'),
    "wide-cell": _replaced_cell("x" * 200_000),
    "word-for-number": _replaced_cell("many"),
    "not-a-number": _replaced_cell("nan"),
    "infinite": _replaced_cell("1e999"),
    "empty-cell": _replaced_cell(""),
    "nul": _replaced_cell("a\x00b"),
    "negative": _replaced_cell("-5"),
    "path": _replaced_cell("../../../etc/passwd"),
    "formula": _replaced_cell('=HYPERLINK("http://x")'),
    "surrogate-in-name": _replaced_cell("\N{GRINNING FACE}\u202e"),
    "semicolons": lambda lines, _chance: lines.__setitem__(
        slice(None), [line.replace(",", ";") for line in lines]
    ),
}
"""Functions that change the lines of a CSV file."""


def damaged_table(name, path, chance):
    """Rewrite a CSV file in one of the ways of `TABLES`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    TABLES[name](lines, chance)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def generator(identity: str) -> random.Random:
    """Random numbers that belong to a case, in every run and on every machine."""
    return random.Random(identity)  # noqa: S311 - not for secrets


def swapped(path: Path, other: Path) -> None:
    """Exchange the contents of two files."""
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)
