"""A folder with `train/<class>/` and optional `val/` and `test/`: the folder is the label."""

from pathlib import Path

from segconf.data.cases import CaseSet
from segconf.data.datasets.dataset import Dataset, FindOptions, register
from segconf.data.labeled_parts import FOLDERS, LabeledPart, labeled_set, list_images


@register
class ClassFolders(Dataset):
    """Images in one folder per class; in `train/unlabeled/` those without a label."""

    name = "class_folders"
    tasks = ("classification",)

    def recognizes(self, root: Path) -> bool:
        """Whether `train/` holds folders, and none of them is a folder of images and masks."""
        train = root / "train"
        return train.is_dir() and bool(_folders(train)) and not (train / "images").is_dir()

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """Cases by part; the names of the folders of `train/` are the classes."""
        parts = {
            part: _part(root, folder)
            for part, folder in FOLDERS.items()
            if (root / folder).is_dir()
        }
        return labeled_set(root.name, root, parts, options)


UNLABELED = "unlabeled"


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _part(root: Path, folder: str) -> LabeledPart:
    place = root / folder
    prefix = "" if folder == "train" else f"{folder}/"
    listing = list_images(place, prefix=prefix, groups=root)
    loose = [case.image_path for name, case in listing.cases.items() if "/" not in name]
    cases = {name: case for name, case in listing.cases.items() if "/" in name}
    labels = {case.id: name.partition("/")[0] for name, case in cases.items()}
    filled = set(labels.values())
    empty = [one for one in _folders(place) if one.name not in filled]
    problems = [f"{one}: lies beside the folders of the classes. Move it into one" for one in loose]
    problems += [f"{one}: a class without any image. Fill or remove the folder" for one in empty]
    return LabeledPart(
        cases=tuple(cases.values()),
        labels={id_: label for id_, label in labels.items() if label != UNLABELED},
        classes=tuple(one.name for one in _folders(place) if one.name != UNLABELED),
        problems=(*listing.problems, *problems),
        notes=listing.notes,
    )
