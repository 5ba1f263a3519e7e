"""Names of cases: one for every image, different from all others on any file system."""

import hashlib
import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from segconf.images.image_format import case_name, image_suffix

LONGEST = 180
"""Bytes of a part of a name, so that the suffixes of all results fit behind it."""
_RESULTS = (".jpg", ".js", ".json", ".npy", ".npz", ".png")
"""Suffixes of results: a folder of that name could stand in the place of a file."""


def printable(text: str) -> str:
    """Text without the bytes of a file name that are no Unicode, which no file can hold."""
    return os.fsencode(text).decode("utf-8", "replace") if _is_odd(text) else text


def name_problem(path: str) -> str:
    """Why a file cannot be called as it is, and what to do; empty where it can."""
    if _is_odd(path):
        return f"{printable(path)}: the name is not valid UTF-8. Rename the file."
    return ""


def _is_odd(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def case_names(files: Sequence[str]) -> list[str]:
    """Names of the results of images, in their order.

    A name is the path without the suffix where no other image has that name, else with it. Upper
    and lower case, and the ways to write an umlaut, count as the same. Parts that are hidden, too
    long, or could be taken for a result are changed; a name that is still not alone ends in a hash
    of the path.

    Args:
        files: paths below a folder, with `/` between folders, all different.
    """
    short = [_safe((PurePosixPath(file).parent / case_name(file)).as_posix()) for file in files]
    whole = [_safe(file) for file in files]
    used = Counter(map(_key, (*short, *whole)))
    names = [
        brief if used[_key(brief)] == 1 else full for brief, full in zip(short, whole, strict=True)
    ]
    used = Counter(map(_key, names))
    return [
        name if used[_key(name)] == 1 else f"{name}~{_hash(file)}"
        for name, file in zip(names, files, strict=True)
    ]


def _key(name: str) -> str:
    """The same for names that some file system takes for the same."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _safe(path: str) -> str:
    *folders, name = printable(path).split("/")
    parts = [_safe_folder(folder) for folder in folders]
    return "/".join([*parts, _safe_part(name)])


def _safe_folder(name: str) -> str:
    part = _safe_part(name)
    is_result = image_suffix(f"x{part}") or part.lower().endswith(_RESULTS)
    return f"{part}_" if is_result else part


def _safe_part(name: str) -> str:
    if PureWindowsPath(name).drive:
        name = name.replace(":", "_")
    if name.startswith("."):
        name = f"_{name[1:]}"
    content = name.encode()
    if len(content) > LONGEST:
        return f"{content[:LONGEST].decode('utf-8', 'ignore')}~{_hash(name)}"
    return name


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
