"""Tables of labels: which class an image belongs to, or several columns of which one is 1."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from segconf.csv_tables import number_in, read_table, table_text
from segconf.data.id_lists import ID_COLUMNS
from segconf.errors import DataError
from segconf.files import write_text
from segconf.images.image_format import image_suffix

TABLE = "labels.csv"
LABEL = "label"
OTHER = "other"
"""Class of the images that have 0 in every column of a class."""
_SHOWN_CLASSES = 10


@dataclass(frozen=True, slots=True)
class LabelTable:
    """Labels by the name of the image as the table gives it.

    Attributes:
        path: of the table.
        labels: name of the class; None where it is missing.
        classes: that the columns name; none where there is a column of labels.
        problems: all of them.
    """

    path: Path
    labels: Mapping[str, str | None]
    classes: tuple[str, ...]
    problems: tuple[str, ...]


def read_label_table(
    path: Path, *, class_names: Sequence[str] = (), other: str = OTHER
) -> LabelTable:
    """Read a table with a column of images and either a column `label` or one per class.

    An empty label, or a row whose classes are all empty, means: unlabeled. A row with 0 in every
    class belongs to none of them, which is a class of its own, and the first one.

    Args:
        path: the table.
        class_names: of the experiment. Where one of them is no column, it is that class.
        other: its name otherwise.

    Raises:
        DataError: it cannot be read, or has no such columns.
    """
    way_out = "Expected the columns image and label, or image and one column per class."
    rows = read_table(path, [], error=DataError, way_out=way_out)
    columns = list(rows[0]) if rows else []
    named = [column for column in columns if column.lower() in ID_COLUMNS]
    if not named or len(columns) == len(named):
        raise DataError(f"{path}: no column of images, or none of labels. {way_out}")
    label = next((column for column in columns if column.lower() == LABEL), None)
    classes = tuple(c for c in columns if c != named[0]) if label is None else ()
    further = [name for name in class_names if name not in classes]
    other = further[0] if len(further) == 1 else other
    problems: list[str] = []
    labels: dict[str, str | None] = {}
    for row in rows:
        name = row[named[0]].strip().replace("\\", "/")
        if not name:
            problems.append(f"{path}: a row without an image")
            continue
        if name in labels:
            problems.append(f"{path}: {name}: two rows for one image")
            continue
        try:
            given = row[label].strip() if label else _chosen(row, classes, other)
        except ValueError as error:
            problems.append(f"{path}: {name}: {error}")
            given = ""
        labels[name] = given or None
    if classes and other in labels.values():
        classes = (other, *classes)
    return LabelTable(path, labels, classes, tuple(problems))


def _chosen(row: Mapping[str, str], classes: Sequence[str], other: str) -> str:
    """The class whose column is 1; empty where all are.

    Raises:
        ValueError: a number is neither 0 nor 1, or several are 1.
    """
    filled = [name for name in classes if row[name].strip()]
    if not filled:
        return ""
    values = {name: number_in(row, name) if name in filled else 0.0 for name in classes}
    odd = next((name for name, value in values.items() if value not in (0, 1)), None)
    if odd is not None:
        raise ValueError(f"{odd} is {row[odd].strip()}, expected 0 or 1")
    found = [name for name, value in values.items() if value == 1]
    if len(found) > 1:
        raise ValueError(f"belongs to {len(found)} classes: {', '.join(found)}")
    return found[0] if found else other


def write_label_table(path: Path, labels: Mapping[str, str]) -> None:
    """Write a table with the columns image and label; where there is no label, remove it."""
    if labels:
        write_text(path, table_text(("image", LABEL), sorted(labels.items())))
    else:
        path.unlink(missing_ok=True)


def listed_classes(names: Sequence[str]) -> str:
    """The names of classes for a message, the first ten of many."""
    more = f" and {len(names) - _SHOWN_CLASSES} more" if len(names) > _SHOWN_CLASSES else ""
    return ", ".join(names[:_SHOWN_CLASSES]) + more


def matched_labels(
    table: LabelTable, images: Sequence[str], *, complete: bool
) -> tuple[dict[str, str], list[str]]:
    """Labels by the name of the image, and the problems of the match.

    The table names an image by its path below the folder of images or by its file name alone, both
    with or without the suffix.

    Args:
        table: the labels.
        images: paths below the folder of images, without the suffix.
        complete: whether every image of the table has to be among these.
    """
    by_name: dict[str, list[str]] = {}
    for image in images:
        for called in {image, PurePosixPath(image).name}:
            by_name.setdefault(called, []).append(image)
    known = set(images)
    labels: dict[str, str] = {}
    rows: dict[str, str] = {}  # by image: what the table calls it
    problems: list[str] = []
    for name, label in table.labels.items():
        bare = name.removesuffix(image_suffix(name))
        fitting = [bare] if bare in known else by_name.get(bare) or by_name.get(name) or []
        if len(fitting) > 1:
            problems.append(f"{table.path}: {name}: several images of that name; give the path")
        elif not fitting and complete:
            problems.append(f"{table.path}: {name}: a label for an image that is not there")
        elif fitting and fitting[0] in rows:
            problems.append(
                f"{table.path}: {name}: two rows for one image (also {rows[fitting[0]]})"
            )
        elif fitting:
            rows[fitting[0]] = name
            if label is not None:
                labels[fitting[0]] = label
    return labels, problems
