"""CIFAR-100 in its official binary files, with its 100 fine classes."""

from pathlib import Path

from segconf.data.cases import CaseSet
from segconf.data.cifar_files import CifarLayout, cifar_archive, find_cifar
from segconf.data.datasets.dataset import Dataset, FindOptions, register

LAYOUT = CifarLayout(
    folder="cifar-100-binary",
    training=("train.bin",),
    test=("test.bin",),
    names="fine_label_names.txt",
    labels=2,
)


@register
class Cifar100(Dataset):
    """50,000 training and 10,000 test images of 32 x 32 pixels in 100 classes."""

    name = "cifar100"
    tasks = ("classification",)
    default_folder = Path("data/cifar100")
    archives = (cifar_archive(100, "03b5dce01913d631647c71ecec9e9cb8", 169_000_000, LAYOUT.folder),)

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """Cases of the training and the test file; validation is held out."""
        return find_cifar(self.name, root, LAYOUT, options)
