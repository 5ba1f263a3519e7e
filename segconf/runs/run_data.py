"""`split.json` of a run: which data it used, and how to notice that the data changed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from segconf.config.ranges import NaturalNumber, OpenSection
from segconf.data.cases import Case, CaseSet
from segconf.data.datasets.dataset import dataset_folder, dataset_key, is_named
from segconf.data.splits import Split

ROLES = ("labeled", "unlabeled", "validation", "test")


class StoredSplit(OpenSection):
    """`split.json`, as it is read back."""

    dataset: str
    data: str | None
    labeled: tuple[str, ...]
    unlabeled: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    accepted: dict[str, str] | None = None
    corrected: dict[str, str] | None = None
    unit: Literal["groups", "images"] = "images"
    labels: NaturalNumber | None = None
    pixels: dict[str, str] | None = None
    ids_sha256: str | None = None

    def check(self) -> None:
        """Refuse an image that stands in two places, which would be trained and tested on.

        Raises:
            ValueError: naming it.
        """
        used = [id_ for role in ROLES for id_ in getattr(self, role)]
        twice = [id_ for id_, count in Counter(used).items() if count > 1]
        if twice:
            raise ValueError(f"the image {twice[0]} is listed twice")
        reviewed = {**(self.accepted or {}), **(self.corrected or {})}
        unknown = [id_ for id_ in reviewed if id_ not in self.labeled]
        if unknown:
            raise ValueError(f"the reviewed image {unknown[0]} is not a labeled one")


@dataclass(frozen=True, slots=True)
class RunData:
    """Which data a run used: enough to find it again and to notice that it changed."""

    dataset: str
    data: str | None
    ids: Mapping[str, Sequence[str]]
    unit: str = "images"
    """What labels are counted in: groups (volumes, patients) or images."""
    labels: int | None = None
    """How many of them are labeled; as many as labeled images when not given."""
    pixels: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the decoded images and masks that the run is trained and validated on, by kind."""
    accepted: Mapping[str, str] = field(default_factory=dict)
    """Predictions that a review accepted, by id of the image: the mask file, or the class."""
    corrected: Mapping[str, str] = field(default_factory=dict)
    """The same for predictions that were corrected."""

    @classmethod
    def of(
        cls, dataset: str, data: Path | None, split: Split, class_names: Sequence[str] = ()
    ) -> "RunData":
        """Describe the data of a new run.

        Args:
            dataset: its name, or its folder.
            data: where a named one lies.
            split: roles of its images.
            class_names: of labels, by their numbers.
        """
        # Absolute, so that the run can be continued from any folder, the default one included.
        folder = dataset_folder(dataset, data)
        is_kept = data is not None or (is_named(dataset) and not folder.is_absolute())
        where = str(folder.absolute()) if is_kept else None
        given = {c.id: str(c.mask_path.absolute()) for c in split.labeled if c.mask_path}
        given |= {c.id: class_names[c.label] for c in split.labeled if c.label is not None}
        accepted, corrected = (
            {id_: value for id_, value in given.items() if id_ in chosen}
            for chosen in (split.accepted, split.corrected)
        )
        return cls(
            dataset_key(dataset),
            where,
            split.ids(),
            unit=split.unit,
            labels=split.labels,
            accepted=accepted,
            corrected=corrected,
        )

    @property
    def label_count(self) -> int:
        """Number of labels, in the unit of the run."""
        return len(self.ids["labeled"]) if self.labels is None else self.labels

    def training_ids(self) -> list[str]:
        """Ids of all training images, in the order of their rows in the decoded arrays."""
        return sorted([*self.ids["labeled"], *self.ids["unlabeled"]])

    def arranged(self, found: CaseSet) -> CaseSet:
        """The data set with every image in the part that it had in this run.

        Where a folder has no part of its own for validation or test, a share of the images with
        masks is held out. Masks that came later would move images between the parts. New images
        go where their group is, such as to the other images of a patient who is held out; those
        of new groups go into training.
        """
        if not found.held_out:
            return found
        movable = {"training", *found.held_out}
        known = dict.fromkeys(self.training_ids(), "training")
        known |= {id_: part for part in ("validation", "test") for id_ in self.ids[part]}
        groups = {
            case.group: known[case.id]
            for part, cases in found.parts().items()
            for case in cases
            if part in movable and known.get(case.id, "training") != "training"
        }
        parts: dict[str, list[Case]] = {part: [] for part in found.parts()}
        for part, cases in found.parts().items():
            for case in cases:
                own = known.get(case.id) or groups.get(case.group, "training")
                parts[own if part in movable else part].append(case)
        training, validation, test = (
            tuple(sorted(cases, key=lambda case: case.id)) for cases in parts.values()
        )
        return replace(found, training=training, validation=validation, test=test)
