"""Synthetic dermoscopy, generated on first use in the layout of the ISIC 2017 archives."""

from pathlib import Path

from segconf.data.cases import CaseSet
from segconf.data.datasets.dataset import Dataset, FindOptions, OnCount, register
from segconf.data.datasets.isic import find_archives
from segconf.errors import DataError
from segconf.synthetic.generation import DemoParameters, write_demo_dataset


@register
class Demo(Dataset):
    """Synthetic images of skin lesions with exact masks; nothing is downloaded."""

    name = "demo"
    default_folder = Path("data/demo")

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """Cases of the generated images."""
        found = find_archives(self.name, root, options)
        if found is None:
            raise DataError(
                f"{root}: no demo images here. Make them with:\n  segconf data demo --data {root}"
            )
        return found

    def prepare(self, root: Path, on_progress: OnCount | None = None) -> None:
        """Generate the images where there are none; generated images are complete or absent."""
        if not root.is_dir() or not any(root.iterdir()):
            write_demo_dataset(root, DemoParameters(), on_progress=on_progress)
