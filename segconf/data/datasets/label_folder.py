"""A folder with `images/` and `labels.csv`; an image without a label is unlabeled."""

from pathlib import Path

from segconf.data.cases import CaseSet
from segconf.data.datasets.dataset import Dataset, FindOptions, register
from segconf.data.label_tables import TABLE, read_label_table
from segconf.data.labeled_parts import LabeledPart, labeled_part, labeled_set, list_images


@register
class LabelFolder(Dataset):
    """Images and a table of labels; `val/` and `test/` of the same shape are optional."""

    name = "label_folder"
    tasks = ("classification",)

    def recognizes(self, root: Path) -> bool:
        """Whether there are images, and a table of labels beside them."""
        return (root / "images").is_dir() and (root / TABLE).is_file()

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """Cases by part; a part without a folder of its own is held out."""
        parts = {"training": _part(root, options.labels or root / TABLE, options, prefix="")}
        for part, folder in (("validation", "val"), ("test", "test")):
            place = root / folder
            if (place / "images").is_dir():
                table = options.labels or place / TABLE
                parts[part] = _part(place, table, options, prefix=f"{folder}/")
        return labeled_set(root.name, root, parts, options)


def _part(root: Path, path: Path, options: FindOptions, *, prefix: str) -> LabeledPart:
    """Images and their labels; one table elsewhere may be for several parts."""
    table = read_label_table(path, class_names=options.class_names)
    listing = list_images(root / "images", prefix=prefix, groups=root)
    return labeled_part(table, listing, complete=options.labels is None)
