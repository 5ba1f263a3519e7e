"""A folder with `images/` and `masks/`; an image without a mask is unlabeled."""

from pathlib import Path

from segconf.data.cases import CaseSet, PairedFolder, pair_folder
from segconf.data.datasets.dataset import Dataset, FindOptions, register
from segconf.data.splits import hold_out_fraction


@register
class Folder(Dataset):
    """Images and masks paired by name; `val/` and `test/` of the same shape are optional."""

    name = "folder"

    def recognizes(self, root: Path) -> bool:
        """Whether there is a folder of images, and masks rather than a table of labels."""
        has_labels = (root / "labels.csv").is_file() and not (root / "masks").is_dir()
        return (root / "images").is_dir() and not has_labels

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """Cases by part; a part without a folder of its own is held out."""
        parts = [pair_folder(root / "images", root / "masks")]
        for part in ("val", "test"):
            folder = root / part
            has_images = (folder / "images").is_dir()
            parts.append(
                pair_folder(folder / "images", folder / "masks", prefix=f"{part}/")
                if has_images
                else PairedFolder()
            )
        training, validation, test = (part.cases for part in parts)
        notes = [note for part in parts for note in part.notes]
        held_out = {name for name, own in (("validation", validation), ("test", test)) if not own}
        if not test:
            training, test = hold_out_fraction(training, options.test, salt="test")
            notes.append(
                f"{root}: no test/ folder; {len(test)} images with masks are held out for it"
            )
        if not validation:
            # The fraction is of all images with masks, also where some became the test part.
            rest = 1 - options.test if "test" in held_out and test else 1
            training, validation = hold_out_fraction(training, options.validation / rest)
            notes.append(
                f"{root}: no val/ folder; {len(validation)} images with masks are held out for it"
            )
        problems = tuple(problem for part in parts for problem in part.problems)
        held = frozenset(held_out)
        return CaseSet(root.name, root, training, validation, test, problems, tuple(notes), held)
