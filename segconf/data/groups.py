"""Groups: which images belong together, by a table or by their folders."""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from segconf.csv_tables import read_table
from segconf.errors import DataError
from segconf.images.image_format import image_suffix

GROUPS = "groups.csv"
COLUMNS = ("image", "group")


def group_of(name: str, table: Mapping[str, str]) -> str:
    """The group of an image: that of the table, else its first folder, else its own name.

    Args:
        name: path below the folder of images, with `/` between folders and without the suffix.
        table: groups by name, from `read_groups`.
    """
    return table.get(name) or name.rpartition("/")[0].partition("/")[0] or name


def read_groups(
    path: Path, images: Mapping[str, Sequence[Path]], *, complete: bool
) -> tuple[dict[str, str], list[str]]:
    """Groups by the name of the image from a table with the columns image and group; its problems.

    The table names an image by its path below the folder of images or by its file name alone, both
    with or without the suffix.

    Args:
        path: the table; there may be none.
        images: files by name.
        complete: whether every image of the table has to be among these.
    """
    if not path.is_file():
        return {}, []
    way_out = "Expected a table with the columns image and group."
    try:
        rows = read_table(path, COLUMNS, error=DataError, way_out=way_out)
    except DataError as error:
        return {}, [str(error)]
    names = _names(images)
    groups: dict[str, str] = {}
    problems: list[str] = []
    for row in rows:
        image, group = row["image"].strip().replace("\\", "/"), row["group"].strip()
        bare = image.removesuffix(image_suffix(image))  # that of a mask may be another one
        fitting = names.get(image) or names.get(bare) or set()
        if len(fitting) > 1:
            problems.append(f"{path}: {image}: several images of that name; give the path")
        elif not group or (complete and not fitting):
            problems.append(f"{path}: {image or 'a row'}: no such image, or no group")
        for name in fitting if len(fitting) == 1 else ():
            if groups.setdefault(name, group) != group:
                before = groups[name]
                problems.append(f"{path}: {image}: belongs to two groups, {before} and {group}")
    return groups, problems


def _names(images: Mapping[str, Sequence[Path]]) -> dict[str, set[str]]:
    """Names of images by everything that a table may call them."""
    found: dict[str, set[str]] = {}
    for name, files in images.items():
        folder = PurePosixPath(name).parent
        for file in files:
            for called in (name, (folder / file.name).as_posix(), file.name):
                found.setdefault(called, set()).add(name)
        found.setdefault(PurePosixPath(name).name, set()).add(name)
    # A path tells images apart whose file names are the same.
    return {called: {called} if called in images else own for called, own in found.items()}
