"""Lists of ids: reading them, and the images that they name."""

from collections.abc import Sequence
from pathlib import Path

from segconf.arrays import read_array
from segconf.config.records import read_json
from segconf.csv_tables import parse_rows
from segconf.data.cases import Case, raise_problems, strip_mask_suffix
from segconf.errors import DataError
from segconf.files import MOST_BYTES, described, read_text
from segconf.images.image_format import image_suffix

ID_COLUMNS = ("id", "image", "image_id", "case", "name", "file")


def known_ids(entries: Sequence[str], cases: Sequence[Case], place: Path) -> set[str]:
    """Ids of a list, checked against the training images.

    An entry is an id, or the path of an image or a mask with or without its suffix. It may begin
    above the folder of images, or below folders of the id. Folders of an id that are named have to
    be its own.

    Args:
        entries: of the list.
        cases: the training images.
        place: of the list, for messages.

    Raises:
        DataError: with every entry that names no image, several, or one without a mask.
    """
    by_id: dict[str, list[Case]] = {}
    for case in cases:
        for id_ in {case.id, case.file_id}:
            by_id.setdefault(id_, []).append(case)
    by_name: dict[str, list[str]] = {}
    for id_ in by_id:
        by_name.setdefault(id_.rpartition("/")[2], []).append(id_)
    chosen: set[str] = set()
    problems: list[str] = []
    for entry in entries:
        matches = [case for id_ in _fitting(entry, by_name) for case in by_id[id_]]
        if not matches:
            problems.append(f"{entry}: no training image of that name")
        elif len({case.image_path for case in matches}) > 1:
            problems.append(f"{entry}: several images of that name; give the path below images/")
        elif not matches[0].is_labeled:
            problems.append(
                f"{entry}: this image has no mask. Put one beside the others, named like the image"
            )
        else:
            chosen |= {case.id for case in matches}
    raise_problems(problems, place)
    return chosen


def _fitting(entry: str, by_name: dict[str, list[str]]) -> list[str]:
    """Ids that an entry can mean, by the last part of the ids."""
    path = entry.replace("\\", "/")
    stem = path[: len(path) - len(image_suffix(path))]
    for name in (entry, stem, strip_mask_suffix(stem)):
        candidates = by_name.get(name.rpartition("/")[2], [])
        if name in candidates:
            return [name]
        # Of the ids that a path ends with, the longest: p1/a rather than a.
        inside = [id_ for id_ in candidates if name.endswith(f"/{id_}")]
        if inside:
            return [max(inside, key=len)]
        if below := [id_ for id_ in candidates if id_.endswith(f"/{name}")]:
            return below
    return []


def read_id_list(path: Path) -> list[str]:
    """Ids or file names of a list.

    `.txt` has one a line; `.csv` a column called id, image, image_id, case, name or file, or else
    its first column; `.json` a list, or an object with a list called `labeled`; `.npy` an array of
    text.
    """
    readers = {".txt": _read_txt, ".csv": _read_csv, ".json": _read_json, ".npy": _read_npy}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: unknown kind of list. Expected one of {', '.join(readers)}.")
    try:
        entries = [entry.strip() for entry in reader(path)]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Give an existing list of ids.") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: not a list of ids: {described(error)}. Write one id a line as .txt."
        ) from None
    entries = [entry for entry in entries if entry and not entry.startswith("#")]
    if not entries:
        raise DataError(f"{path}: holds no id.")
    return entries


def _read_txt(path: Path) -> list[str]:
    return read_text(path).splitlines()


def _read_csv(path: Path) -> list[str]:
    rows = parse_rows(read_text(path))
    if not rows:
        return []
    header = [cell.strip().lower() for cell in rows[0]]
    named = [header.index(name) for name in ID_COLUMNS if name in header]
    if not named:
        return [row[0] for row in rows]
    return [row[named[0]] for row in rows[1:] if len(row) > named[0]]


def _read_json(path: Path) -> list[str]:
    content = read_json(path)
    entries = content.get("labeled") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise ValueError(  # noqa: TRY004 - the content is wrong, not a type of ours
            'expected a list, or an object with a list called "labeled"'
        )
    return [str(entry) for entry in entries]


def _read_npy(path: Path) -> list[str]:
    return [str(entry) for entry in read_array(path, limit=MOST_BYTES).ravel()]
