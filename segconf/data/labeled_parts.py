"""Cases with labels: class names become numbers, and parts that are missing are held out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from segconf.config.ranges import MOST_CLASSES
from segconf.data.cases import Case, CaseSet, list_pictures
from segconf.data.datasets.dataset import FindOptions
from segconf.data.groups import GROUPS, read_groups
from segconf.data.label_tables import LabelTable, listed_classes, matched_labels
from segconf.data.splits import hold_out_fraction
from segconf.images.image_format import format_of, listed_suffixes

PARTS = ("training", "validation", "test")
FOLDERS = {"training": "train", "validation": "val", "test": "test"}
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class LabeledPart:
    """Cases of one part, the class of each by its name, and what is wrong with them.

    Attributes:
        cases: without numbers of classes yet.
        labels: name of the class by the id of the case; a case that is not in it is unlabeled.
        classes: names that the part declares, whether or not a case has them.
        problems: all of them.
        notes: what was left out.
    """

    cases: tuple[Case, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageListing:
    """Images of a folder as cases, by the name of their path below it."""

    cases: Mapping[str, Case]
    problems: tuple[str, ...]
    notes: tuple[str, ...]


def list_images(folder: Path, *, prefix: str = "", groups: Path | None = None) -> ImageListing:
    """Images below a folder, one case each; a volume has no single label and is refused.

    Args:
        folder: of the images, to any depth.
        prefix: before the names, in the ids: it tells parts apart.
        groups: folder that may hold a `groups.csv`; an image is a group of its own without one.
    """
    listing = list_pictures(folder)
    problems = list(listing.problems)
    table, mistakes = (
        ({}, [])
        if groups is None
        else read_groups(groups / GROUPS, listing.pictures, complete=False)
    )
    problems += mistakes
    cases: dict[str, Case] = {}
    for name, paths in sorted(listing.pictures.items()):
        if len(paths) > 1:
            shown = ", ".join(map(str, paths))
            problems.append(f"{shown}: several images with the name '{name}'")
        if format_of(paths[0]).has_slices:
            problems.append(f"{paths[0]}: a volume; labels are for pictures. Give its slices")
        cases[name] = Case(f"{prefix}{name}", paths[0], group=table.get(name, ""))
    if not cases:
        problems.append(f"{folder}: no image found (looked for {listed_suffixes()})")
    left_out = listing.left_out
    notes = [f"{folder}: left out {len(left_out)} other files, such as {name}" for name in left_out]
    return ImageListing(cases, tuple(problems), tuple(notes[:1]))


def labeled_part(table: LabelTable, listing: ImageListing, *, complete: bool) -> LabeledPart:
    """Images with the labels of a table.

    Args:
        table: of labels.
        listing: of images.
        complete: whether every image of the table has to be among them.
    """
    labels, problems = matched_labels(table, list(listing.cases), complete=complete)
    return LabeledPart(
        cases=tuple(listing.cases.values()),
        labels={listing.cases[name].id: label for name, label in labels.items()},
        classes=table.classes,
        problems=(*table.problems, *listing.problems, *problems),
        notes=listing.notes,
    )


def labeled_set(
    name: str, root: Path, parts: Mapping[str, LabeledPart], options: FindOptions
) -> CaseSet:
    """A data set of labels: classes by number, and a part without images held out.

    Args:
        name: of the data set.
        root: its folder or file.
        parts: by the names of PARTS; training is among them.
        options: what is held out, and the classes where they are given.
    """
    training = parts["training"]
    names = options.class_names or training.classes
    names = names or tuple(sorted(set(training.labels.values())))
    numbers = {class_name: number for number, class_name in enumerate(names)}
    problems = [problem for part in parts.values() for problem in part.problems]
    problems += _class_problems(root, names)
    cases: dict[str, tuple[Case, ...]] = dict.fromkeys(PARTS, ())
    for part, own in parts.items():
        unknown = {id_: label for id_, label in own.labels.items() if label not in numbers}
        problems += [
            f"{root}: {id_}: the label '{label}' is no class ({listed_classes(names)})"
            for id_, label in unknown.items()
        ]
        cases[part] = tuple(
            replace(case, label=numbers.get(own.labels.get(case.id, ""))) for case in own.cases
        )
    notes = [note for part in parts.values() for note in part.notes]
    held_out = frozenset(part for part in PARTS[1:] if not cases[part])
    taken = 0.0
    for part, fraction in (("test", options.test), ("validation", options.validation)):
        if part in held_out:
            # The fraction is of all labeled cases, also where some became the test part.
            rest = fraction / (1 - taken)
            cases["training"], cases[part] = hold_out_fraction(cases["training"], rest, salt=part)
            taken = fraction if cases[part] else 0.0
            found = len(cases[part])
            notes.append(f"{root}: no {part} part; {found} labeled cases are held out for it")
    return CaseSet(
        name,
        root,
        cases["training"],
        cases["validation"],
        cases["test"],
        problems=tuple(problems),
        notes=tuple(notes),
        held_out=held_out,
        task="classification",
        class_names=names,
    )


def _class_problems(root: Path, names: Sequence[str]) -> list[str]:
    if len(names) < _FEWEST:
        found = f"one class only ({names[0]})" if names else "no class"
        return [f"{root}: {found}. Classification needs two or more"]
    if len(names) > MOST_CLASSES:
        return [f"{root}: {len(names)} classes; segconf can tell {MOST_CLASSES} apart at most"]
    return []
