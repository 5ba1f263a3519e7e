"""A table of numbers with a column `label`: a `.csv` file, or a folder with `features.csv`."""

from dataclasses import replace
from pathlib import Path

from segconf.data.cases import Case, CaseSet
from segconf.data.datasets.dataset import Dataset, FindOptions, register
from segconf.data.feature_tables import SUFFIX, read_feature_table
from segconf.data.labeled_parts import LabeledPart, labeled_set

TABLE = "features.csv"


@register
class FeatureTables(Dataset):
    """Rows with a label, or without one; validation and test are held out."""

    name = "feature_table"
    tasks = ("classification",)

    def recognizes(self, root: Path) -> bool:
        """Whether this is a table, or a folder that holds one."""
        return (root.is_file() and root.suffix.lower() == SUFFIX) or (root / TABLE).is_file()

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """A case per row."""
        path = root / TABLE if root.is_dir() else root
        table = read_feature_table(path)
        cases = tuple(
            Case(name, path, group=group, record=record)
            for record, (name, group) in enumerate(zip(table.names, table.groups, strict=True))
        )
        labels = {case.id: label for case, label in zip(cases, table.labels, strict=True) if label}
        part = LabeledPart(cases, labels, problems=table.problems)
        found = labeled_set(path.stem, root, {"training": part}, options)
        return replace(found, columns=table.columns, size=(1, 1))
