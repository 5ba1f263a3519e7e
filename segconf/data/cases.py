"""Cases: one image and its mask or label, if it has one; masks are paired by name."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from segconf.config.ranges import Task
from segconf.data.dicom_names import dicom_images, is_dicom_image
from segconf.data.groups import GROUPS, group_of, read_groups
from segconf.errors import DataError
from segconf.images.image_format import case_name, format_of, image_suffix, listed_suffixes
from segconf.images.io import read_header
from segconf.images.naming import name_problem

MASK_SUFFIXES = ("_segmentation", "_mask")
SIDECAR_SUFFIXES = {".csv", ".html", ".json", ".md", ".pdf", ".txt", ".xml", ".yaml", ".yml"}
SIDECAR_NAMES = {"thumbs.db", "desktop.ini"}
SHOWN_PROBLEMS = 10
SLICE = "_z"
"""Stands between the id of a volume and the number of a slice."""


@dataclass(frozen=True, slots=True)
class Case:
    """One image, or one slice of a volume, and its mask or label.

    Attributes:
        id: the path below the folder of images, without its suffix; slices add a number.
        image_path: the file.
        mask_path: the file of the mask; None for an unlabeled image, and in classification.
        slice_index: of a volume.
        group: what belongs together, such as a volume or a patient: all of it is held out, or none.
            The id of the file where nothing else is known.
        label: number of the class of the image; None without one, and in segmentation.
        record: number of the case in a file that holds many, such as the rows of a table.
    """

    id: str
    image_path: Path
    mask_path: Path | None = None
    slice_index: int | None = None
    group: str = ""
    label: int | None = None
    record: int | None = None

    def __post_init__(self) -> None:
        """A case without a group is a group of its own, with its slices."""
        if not self.group:
            object.__setattr__(self, "group", self.file_id)

    @property
    def file_id(self) -> str:
        """Id of the file: that of a slice without the number of the slice."""
        volume, mark, _ = self.id.rpartition(SLICE)
        return volume if mark and self.slice_index is not None else self.id

    @property
    def is_labeled(self) -> bool:
        """Whether there is a mask or a label."""
        return self.mask_path is not None or self.label is not None

    def unlabeled(self) -> "Case":
        """The same case with its mask or label hidden, as the training must see it."""
        return replace(self, mask_path=None, label=None)


@dataclass(frozen=True, slots=True)
class ImageCases:
    """The cases of one file: a picture, or the slices of a volume in their order.

    Attributes:
        name: id of the file.
        group: what the file belongs to.
        cases: one for a picture.
    """

    name: str
    group: str
    cases: tuple[Case, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.cases[0].image_path


def images_of(cases: Sequence[Case]) -> tuple[ImageCases, ...]:
    """Cases by file, in the order in which the files first occur.

    A file is what is predicted, judged and referred; its slices are not independent of each other.
    """
    files: dict[tuple[Path, int | None], list[Case]] = {}
    for case in cases:
        files.setdefault((case.image_path, case.record), []).append(case)
    return tuple(
        ImageCases(own[0].file_id, own[0].group, tuple(sorted(own, key=_slice_number)))
        for own in files.values()
    )


def _slice_number(case: Case) -> int:
    return case.slice_index or 0


@dataclass(frozen=True, slots=True)
class CaseSet:
    """What a data set holds before any mask or label is hidden, and what is wrong with it."""

    name: str
    root: Path
    training: tuple[Case, ...]
    validation: tuple[Case, ...]
    test: tuple[Case, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    held_out: frozenset[str] = frozenset()
    """Parts without a folder of their own, taken from the labeled training images."""
    task: Task = "segmentation"
    class_names: tuple[str, ...] = ()
    """Of the labels, by their numbers; none in segmentation."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of numbers of a table; None for images."""
    size: tuple[int, int] | None = None
    """Height and width that all images have, where the data set knows."""

    def parts(self) -> dict[str, tuple[Case, ...]]:
        """The three parts by name."""
        return {"training": self.training, "validation": self.validation, "test": self.test}

    def folders(self) -> tuple[Path, ...]:
        """Folders with images or masks: those right below the root, or where else a file lies.

        A table is one file, and has none.
        """
        found: set[Path] = set()
        if self.columns is not None:
            return ()
        for case in (case for part in self.parts().values() for case in part):
            for path in (case.image_path, case.mask_path):
                if path is not None:
                    below = (
                        path.parts[len(self.root.parts) :] if path.is_relative_to(self.root) else ()
                    )
                    found.add(self.root / below[0] if len(below) > 1 else path.parent)
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class PairedFolder:
    """Cases of one folder of images and one of masks, with the problems and oddities met."""

    cases: tuple[Case, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class BrokenDataError(DataError):
    """Problems of a data set in one message: the first ten and the count."""

    def __init__(self, problems: Sequence[str], place: Path) -> None:
        self.problems = tuple(problems)
        shown = [f"  {problem}" for problem in problems[:SHOWN_PROBLEMS]]
        if len(problems) > SHOWN_PROBLEMS:
            shown.append(f"  ... and {len(problems) - SHOWN_PROBLEMS} more")
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n".join([f"{place}: {count}:", *shown]))


def raise_problems(problems: Sequence[str], place: Path) -> None:
    """Report all problems at once, if there are any."""
    if problems:
        raise BrokenDataError(list(dict.fromkeys(problems)), place)


def pair_folder(images: Path, masks: Path | None, *, prefix: str = "") -> PairedFolder:
    """Pair the images of a folder with the masks of another by name.

    The name of a mask is that of its image, with or without `_segmentation` or `_mask`. Folders are
    searched to any depth; an id is the path below `images` without its suffix.

    The group of an image is that of `groups.csv` beside the folder of images (columns image and
    group), else the first folder below it that holds the image, else the image itself.
    """
    listing = list_pictures(images)
    masks_listing = list_pictures(masks) if masks is not None and masks.is_dir() else Listing()
    problems = listing.problems + masks_listing.problems
    image_files = listing.pictures
    mask_files: dict[str, list[Path]] = {}
    for name, paths in masks_listing.pictures.items():
        # An image may itself be called "..._mask": its own name comes first.
        own = name if name in image_files else strip_mask_suffix(name)
        mask_files.setdefault(own, []).extend(paths)
    # A folder without masks may be a part of what the table lists.
    groups, mistakes = read_groups(images.parent / GROUPS, image_files, complete=masks is not None)
    problems += mistakes
    cases: list[Case] = []
    for name, paths in sorted(image_files.items()):
        mask_paths = mask_files.pop(name, [])
        if len(paths) > 1:
            problems.append(f"{_listed(paths)}: several images with the name '{name}'")
        if len(mask_paths) > 1:
            problems.append(f"{_listed(mask_paths)}: several masks for the image '{name}'")
        mask_path = mask_paths[0] if mask_paths else None
        # The name alone is the default of a case, with the prefix that tells parts apart.
        group = group_of(name, groups)
        own = "" if group == name else group
        case = Case(f"{prefix}{name}", paths[0], mask_path, group=own)
        try:
            cases += _slices(case)
        except DataError as error:
            problems.append(str(error))
    problems += [
        f"{paths[0]}: mask without an image (no {name}.* in {images})"
        for name, paths in sorted(mask_files.items())
    ]
    if not image_files:
        problems.append(f"{images}: no image found (looked for {listed_suffixes()})")
    notes = [
        f"{folder}: left out {len(left_out)} other files, such as {left_out[0]}"
        for folder, left_out in ((images, listing.left_out), (masks, masks_listing.left_out))
        if left_out
    ]
    return PairedFolder(tuple(cases), tuple(problems), tuple(notes))


@dataclass(slots=True)
class Listing:
    """Files of a folder: pictures by name, what is none, and what is left out on purpose."""

    pictures: dict[str, list[Path]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def list_pictures(folder: Path) -> Listing:
    """The pictures below a folder, to any depth, named by their paths without the suffix."""
    listing = Listing()
    dicom: list[Path] = []
    for path in sorted(folder.rglob("*")):
        below = path.relative_to(folder)
        if path.is_dir() or any(part.startswith(".") for part in below.parts):
            continue
        if problem := name_problem(str(path)):
            listing.problems.append(problem)
        elif _is_sidecar(path):
            listing.left_out.append(path.name)
        elif is_dicom_image(path):
            dicom.append(path)
        elif image_suffix(path):
            name = (below.parent / case_name(path)).as_posix()
            listing.pictures.setdefault(name, []).append(path)
        else:
            listing.problems.append(f"{path}: not a supported image format ({listed_suffixes()})")
    for name, path in dicom_images(folder, dicom):
        listing.pictures.setdefault(name, []).append(path)
    return listing


def _is_sidecar(path: Path) -> bool:
    """Notes and tables among the images, and the superpixels that ISIC ships beside them."""
    return (
        path.suffix.lower() in SIDECAR_SUFFIXES
        or path.name.lower() in SIDECAR_NAMES
        or path.stem.endswith("_superpixels")
    )


def _slices(case: Case) -> list[Case]:
    """A volume becomes one case per slice; anything else stays one case."""
    if not format_of(case.image_path).has_slices:
        return [case]
    slices = read_header(case.image_path).slices
    if case.mask_path is not None and (found := read_header(case.mask_path).slices) != slices:
        raise DataError(
            f"{case.mask_path}: mask has {found} slices, "
            f"image {case.image_path.name} has {slices}. A mask must have the size of its image."
        )
    if slices == 1:
        return [case]
    return [
        replace(case, id=f"{case.id}{SLICE}{index:03d}", slice_index=index)
        for index in range(slices)
    ]


def strip_mask_suffix(name: str) -> str:
    """Name of the image that a mask's name stands for."""
    for suffix in MASK_SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))
