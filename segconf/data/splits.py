"""Splits: seeded, stable choices that do not depend on machine or file order."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from segconf.data.cases import Case, CaseSet, raise_problems
from segconf.data.id_lists import known_ids, read_id_list
from segconf.errors import DataError

_MASKS_WANTED = (
    "put them in masks/, named like their images, or predict the images, review the masks and give "
    "their folder as data.corrections"
)
HOLD_OUT_SEED = 0
"""Held-out images never move with the seed of a run, so that runs can be compared on them."""


@dataclass(frozen=True, slots=True)
class ReviewedLabel:
    """What a review gave to a case: accepted as it was predicted, or corrected.

    Attributes:
        corrected: whether it was.
        path: of the mask, in segmentation.
        label: number of the class, in classification.
    """

    corrected: bool
    path: Path | None = None
    label: int | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """Cases by their role. The masks of unlabeled cases are hidden: their path is None."""

    labeled: tuple[Case, ...]
    unlabeled: tuple[Case, ...]
    validation: tuple[Case, ...]
    test: tuple[Case, ...]
    accepted: frozenset[str] = frozenset()
    """Ids of the labeled cases whose mask or label is a prediction that a review accepted."""
    corrected: frozenset[str] = frozenset()
    """Ids of those whose mask or label was corrected in a review."""

    @property
    def unit(self) -> str:
        """What labels are counted in: groups where one holds several training cases, else images.

        A group is a volume, or what belongs to a patient: its masks are made, and used, together.
        """
        return label_unit((*self.labeled, *self.unlabeled))

    @property
    def labels(self) -> int:
        """How many groups or images are labeled."""
        if self.unit == "images":
            return len(self.labeled)
        return len({case.group for case in self.labeled})

    def ids(self) -> dict[str, list[str]]:
        """Ids by role, as saved in the `split.json` of a run."""
        roles = {"labeled": self.labeled, "unlabeled": self.unlabeled}
        roles |= {"validation": self.validation, "test": self.test}
        return {role: [case.id for case in cases] for role, cases in roles.items()}

    def with_reviewed(self, reviewed: Mapping[str, ReviewedLabel]) -> "Split":
        """Label unlabeled cases as a review did, by id; a labeled case keeps what it has."""
        moved = {case.id: reviewed[case.id] for case in self.unlabeled if case.id in reviewed}
        labeled = [
            replace(case, mask_path=moved[case.id].path, label=moved[case.id].label)
            for case in self.unlabeled
            if case.id in moved
        ]
        corrected = frozenset(id_ for id_, found in moved.items() if found.corrected)
        return replace(
            self,
            labeled=tuple(sorted((*self.labeled, *labeled), key=lambda case: case.id)),
            unlabeled=tuple(case for case in self.unlabeled if case.id not in moved),
            accepted=frozenset(moved) - corrected,
            corrected=corrected,
        )


def split_cases(
    found: CaseSet,
    *,
    labeled: int | None,
    labeled_list: Path | Sequence[str] | None,
    seed: int,
    reviewed: Mapping[str, ReviewedLabel] | None = None,
) -> Split:
    """Choose the labeled images of the training part and hide the masks of all others.

    Args:
        found: the data set.
        labeled: how many groups or images (`label_unit` says which) may be used with their masks
            or labels; all when None. A larger number contains a smaller one.
        labeled_list: the ids to use instead, or a file with them. That of a volume stands for all
            of its slices.
        seed: decides which; the same seed gives the same ids on any machine.
        reviewed: what a review gave to cases that have no mask or label of their own, by id.
    """
    candidates = [case for case in found.training if case.is_labeled]
    if labeled_list is not None:
        if isinstance(labeled_list, Path):
            chosen = known_ids(read_id_list(labeled_list), found.training, labeled_list)
        else:
            chosen = known_ids(labeled_list, found.training, found.root)
    elif labeled is None:
        chosen = {case.id for case in candidates}
    else:
        chosen = _drawn(candidates, labeled, seed, unit=label_unit(found.training), root=found.root)
    if not chosen and not reviewed:
        raise_problems(found.problems, found.root)
        what, way_out = (
            ("a label", "write them into labels.csv")
            if found.task == "classification"
            else ("a mask", _MASKS_WANTED)
        )
        raise DataError(
            f"{found.root}: none of the {len(found.training)} training images has {what}. "
            f"Training needs a few: {way_out}."
        )
    split = Split(
        labeled=tuple(case for case in found.training if case.id in chosen),
        unlabeled=tuple(c.unlabeled() for c in found.training if c.id not in chosen),
        validation=found.validation,
        test=found.test,
    )
    return split.with_reviewed(reviewed or {})


def label_unit(training: Sequence[Case]) -> str:
    """What the labels of training cases are counted in: `groups` or `images`."""
    return "groups" if len({case.group for case in training}) < len(training) else "images"


def _drawn(
    candidates: Sequence[Case], labeled: int, seed: int, *, unit: str, root: Path
) -> set[str]:
    """Ids of that many groups or images with masks or labels, the same for the same seed.

    Labels are balanced: no class gets more than one more than another that has some left.
    """
    by_name: dict[str, list[Case]] = {}
    for case in candidates:
        by_name.setdefault(case.group if unit == "groups" else case.id, []).append(case)
    kind = "masks" if all(case.label is None for case in candidates) else "labels"
    if labeled > len(by_name):
        what = "groups (volumes, patients) of training" if unit == "groups" else "training"
        raise DataError(
            f"labeled = {labeled}: {root} has {len(by_name)} {what} images with {kind}. "
            f"Give a number up to {len(by_name)}, or none to use them all."
        )
    ordered = sorted(by_name, key=lambda name: _rank(name, seed, "labeled"))
    classes = _by_class(ordered, by_name).values()
    if labeled < len(classes):
        raise DataError(
            f"labeled = {labeled}: {root} has {len(classes)} classes, and each needs a label. "
            f"Give at least {len(classes)}."
        )
    places = {name: place for own in classes for place, name in enumerate(own)}
    ordered.sort(key=lambda name: places[name])  # one of each class, then the next of each
    return {case.id for name in ordered[:labeled] for case in by_name[name]}


def _by_class(
    names: Sequence[str], cases: Mapping[str, Sequence[Case]]
) -> dict[int | None, list[str]]:
    """Names of groups or images by class, in the same order; that of a group is its commonest."""
    found: dict[int | None, list[str]] = {}
    for name in names:
        labels = Counter(case.label for case in cases[name] if case.is_labeled)
        found.setdefault(labels.most_common(1)[0][0], []).append(name)
    return found


def hold_out_fraction(
    cases: Sequence[Case], fraction: float, *, salt: str = "validation"
) -> tuple[tuple[Case, ...], tuple[Case, ...]]:
    """Set a fraction of the groups with masks or labels apart; no group is on both sides.

    With labels, the fraction is that of every class.
    """
    members: dict[str, list[Case]] = {}
    for case in cases:
        if case.is_labeled:
            members.setdefault(case.group, []).append(case)
    groups = sorted(members, key=lambda name: _rank(name, HOLD_OUT_SEED, salt))
    apart = {
        name
        for own in _by_class(groups, members).values()
        for name in own[: round(fraction * len(own))]
    }
    kept = tuple(case for case in cases if case.group not in apart)
    return kept, tuple(case for case in cases if case.group in apart)


def _rank(name: str, seed: int, salt: str) -> bytes:
    """A pseudo-random sort key that depends on nothing but its arguments."""
    return hashlib.sha256(f"{salt}/{seed}/{name}".encode()).digest()
