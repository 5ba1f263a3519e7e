"""Input images of a prediction: finding, naming and sharding."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segconf.data.cases import raise_problems
from segconf.data.feature_tables import SUFFIX as TABLE_SUFFIX
from segconf.data.feature_tables import read_feature_table
from segconf.data.groups import GROUPS, group_of, read_groups
from segconf.errors import ConfigError, DataError
from segconf.files import described, read_text
from segconf.images.dicom_files import (
    PICTURE_SUFFIX,
    group_files,
    identified,
    is_available,
    is_dicom,
    with_suffix,
)
from segconf.images.image_format import case_name, image_suffix, listed_suffixes
from segconf.images.naming import case_names, name_problem, printable
from segconf.results.label_rows import TABLE as LABELS

LIST_SUFFIX = ".txt"
_SUPERPIXELS = "_superpixels"  # ISIC ships them among its images


@dataclass(frozen=True, slots=True)
class Source:
    """An image and the name of its results, with `/` between folders.

    Attributes:
        case: name of the results.
        path: the file.
        file: the same below the folder that is predicted.
        group: what the image belongs to, such as a patient; itself where nothing is known.
    """

    case: str
    path: Path
    file: str
    group: str
    problem: str = ""
    """Why it cannot be predicted, where that is known from its name."""
    record: int | None = None
    """Number of the row in a table."""


@dataclass(frozen=True, slots=True)
class Sources:
    """All images of a job, in the order of their names, and what they are relative to.

    That is a folder, or the table whose rows they are.
    """

    root: Path
    items: tuple[Source, ...]
    left_out: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    """Folders that were given, whose files are all looked at."""
    are_anonymous: bool = False
    """Whether there are DICOM images among them, called by their UIDs: no other name is shown."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part `index` (from 0) of `count` of a job."""

    index: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """From `I/N`, counted from 1."""
        index, slash, count = text.partition("/")
        if not (slash and index.isdecimal() and count.isdecimal()):
            raise ConfigError(f"shard {text}: expected I/N, such as 1/4.")
        if not 1 <= int(index) <= int(count):
            raise ConfigError(f"shard {text}: I counts from 1 to N.")
        return cls(int(index) - 1, int(count))

    def own(self, items: Sequence[Source]) -> Sequence[Source]:
        """The items of this shard."""
        return items[self.index :: self.count]


def find_images(
    inputs: Sequence[Path], *, exclude: Path | None = None, identify: bool = False
) -> Sources:
    """Images of folders (with their subfolders), of files, and of lists of paths.

    Results are called like the image, relative to the folder, or to the common folder of several
    inputs. Images of one folder that differ in their suffix only keep it in the name. DICOM files
    are recognized by their content too, and called by their UIDs. The group of an image is that of
    `groups.csv` in the folder or beside it, else the first folder below it, else itself.

    Args:
        inputs: folders, image files, or `.txt` files with a path per line.
        exclude: a folder to leave out: that of the results.
        identify: call DICOM images by the names of their files and folders, which may tell who
            the patient is.
    """
    found: dict[Path, Path] = {}  # to the path that the name is made of
    left_out: list[Path] = []
    tops: list[Path] = []
    folders: list[Path] = []
    for given, is_listed in _expanded(inputs):
        path = Path(os.path.abspath(given))  # noqa: PTH100 - links keep their names
        if path.is_dir():
            images, others = _inside(path, exclude)
            left_out += others
            folders.append(path)
            tops.append(path)
        elif is_listed or os.path.lexists(path):
            if not image_suffix(path) and not is_dicom(path):
                raise DataError(
                    f"{given}: unknown image format. Convert it to one of {listed_suffixes()}."
                )
            images = [path]
            tops.append(path.parent)
        else:
            raise DataError(f"{given}: no such file or folder. Check the path.")
        found |= _with_dicom(tops[-1], images, identify=identify)
    if not found:
        names = ", ".join(str(path) for path in inputs)
        raise DataError(
            f"{names}: no image found (looked for {listed_suffixes()}). Check the path."
        )
    try:
        root = Path(os.path.commonpath(tops))
    except ValueError:  # on Windows
        places = ", ".join(sorted({top.drive for top in tops}))
        raise DataError(
            f"{places}: images on several drives have no folder in common, which their results are "
            "named after. Predict those of each drive apart."
        ) from None
    anonymous = not identify and any(_is_dicom_name(path) for path in found)
    items = _named(dict(sorted(found.items())), root)
    return Sources(root, items, tuple(left_out), tuple(folders), anonymous)


def find_sources(
    inputs: Sequence[Path], *, exclude: Path | None = None, identify: bool = False
) -> Sources:
    """Images as `find_images` finds them, or the rows of a single table of numbers."""
    if len(inputs) == 1 and inputs[0].suffix.lower() == TABLE_SUFFIX and inputs[0].is_file():
        return find_rows(inputs[0])
    return find_images(inputs, exclude=exclude, identify=identify)


def find_rows(path: Path) -> Sources:
    """The rows of a table of numbers, each as a case.

    Raises:
        DataError: it is none, with every cell that is no number.
    """
    table = read_feature_table(path)
    raise_problems(table.problems, path)
    items = [
        Source(name, path, path.name, group or name, record=record)
        for record, (name, group) in enumerate(zip(table.names, table.groups, strict=True))
    ]
    # The table itself: rows of another one in the same folder may have the same names.
    root = Path(os.path.abspath(path))  # noqa: PTH100 - links keep their names
    return Sources(root, tuple(sorted(items, key=lambda source: source.case)))


def _with_dicom(top: Path, files: Sequence[Path], *, identify: bool) -> dict[Path, Path]:
    """Images of some files below a folder: each a file, but for slices of DICOM volumes."""
    plain = {file: file for file in files if image_suffix(file) and not _is_dicom_name(file)}
    dicom = [file for file in files if file not in plain]
    if not dicom or not is_available():
        return plain | {with_suffix(file): with_suffix(file) for file in dicom}
    for image in group_files(top, dicom):
        if not identify:
            plain[image.path] = image.path
            continue
        known = identified(image)
        suffix = "" if known.path == known.title else image.path.suffix
        plain[known.path] = known.title.with_name(known.title.name + suffix)
    return plain


def _is_dicom_name(file: Path) -> bool:
    return image_suffix(file).startswith(PICTURE_SUFFIX[:3])


def _expanded(inputs: Sequence[Path]) -> list[tuple[Path, bool]]:
    """Inputs with lists replaced by what they list, and whether a list named them."""
    paths: list[tuple[Path, bool]] = []
    for given in inputs:
        if given.suffix.lower() != LIST_SUFFIX or not given.is_file():
            paths.append((given, False))
            continue
        try:
            lines = read_text(given).splitlines()
        except (OSError, ValueError) as error:
            raise DataError(
                f"{given}: not a readable list of paths ({described(error)}). "
                "Write one path a line."
            ) from error
        names = [line.strip() for line in lines]
        paths += [(given.parent / name, True) for name in names if name and "\0" not in name]
    return paths


def _inside(folder: Path, exclude: Path | None) -> tuple[list[Path], list[Path]]:
    """Images below a folder, and other files; what is hidden does not count."""
    excluded = None if exclude is None else Path(os.path.abspath(exclude))  # noqa: PTH100
    images: list[Path] = []
    others: list[Path] = []

    def refuse(error: OSError) -> None:
        raise DataError(
            f"{error.filename}: cannot be listed ({error.strerror}). Give yourself access to the "
            "folder, or leave it out."
        ) from error

    for parent, folders, files in os.walk(folder, onerror=refuse):
        here = Path(parent)
        others += [here / name for name in folders if (here / name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and here / name != excluded
            and not _is_prediction_folder(here / name)
        ]
        for name in files:
            if name.startswith("."):
                continue
            path = here / name
            is_image = bool(image_suffix(path)) and not path.stem.endswith(_SUPERPIXELS)
            is_image = is_image or (not image_suffix(path) and is_dicom(path))
            (images if is_image else others).append(path)
    return images, others


def _is_prediction_folder(folder: Path) -> bool:
    """Whether a folder holds the results of an earlier prediction, which are no input."""
    if not (folder / "run.json").is_file():
        return False
    return (folder / "confidence").is_dir() or (folder / LABELS).is_file()


def _named(paths: Mapping[Path, Path], root: Path) -> tuple[Source, ...]:
    """Images with the names of their results, in the order of these.

    Args:
        paths: of images, and what their names are made of.
        root: that names are relative to.
    """
    titles = [_below(title, root) for title in paths.values()]
    used = Counter(titles)
    named = [
        # Several series may lie in one folder.
        title.parent / case_name(title) / path.name if used[title] > 1 else title
        for path, title in zip(paths, titles, strict=True)
    ]
    names = case_names([name.as_posix() for name in named])
    groups = _groups(root, dict(zip(names, paths, strict=True)))
    sources = [
        Source(
            case,
            path,
            printable(path.relative_to(root).as_posix()),
            group_of(case, groups),
            name_problem(str(path)),
        )
        for case, path in zip(names, paths, strict=True)
    ]
    return tuple(sorted(sources, key=lambda source: source.case))


def _groups(root: Path, images: Mapping[str, Path]) -> dict[str, str]:
    """Groups by name of the results, from the table in the folder or beside it, if there is one."""
    tables = [path for path in (root / GROUPS, root.parent / GROUPS) if path.is_file()]
    if not tables:
        return {}
    files = {name: [path] for name, path in images.items()}
    groups, problems = read_groups(tables[0], files, complete=False)
    if problems:
        raise DataError(f"{problems[0]}. Correct the table, or move it elsewhere.")
    return groups


def _below(path: Path, root: Path) -> Path:
    """The path relative to the root; the slices of a series may lie in the root itself."""
    return path.relative_to(root) if path.is_relative_to(root) else Path(path.name)
