"""CIFAR-10 in its official binary files."""

from pathlib import Path

from segconf.data.cases import CaseSet
from segconf.data.cifar_files import CifarLayout, cifar_archive, find_cifar
from segconf.data.datasets.dataset import Dataset, FindOptions, register

LAYOUT = CifarLayout(
    folder="cifar-10-batches-bin",
    training=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test=("test_batch.bin",),
    names="batches.meta.txt",
    labels=1,
)


@register
class Cifar10(Dataset):
    """50,000 training and 10,000 test images of 32 x 32 pixels in 10 classes."""

    name = "cifar10"
    tasks = ("classification",)
    default_folder = Path("data/cifar10")
    archives = (cifar_archive(10, "c32a1d4ab5d03f1284b67883e8d87530", 170_000_000, LAYOUT.folder),)

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """Cases of the training and the test files; validation is held out."""
        return find_cifar(self.name, root, LAYOUT, options)
