"""ISIC 2017 part 1 (lesion segmentation) in the layout of its archives."""

from pathlib import Path

from segconf.data.archives import ISIC_ARCHIVES
from segconf.data.cases import CaseSet, PairedFolder, pair_folder
from segconf.data.datasets.dataset import Dataset, HoldOut, register
from segconf.data.splits import hold_out_fraction
from segconf.errors import DataError

ISIC_PARTS = {"training": "Training", "validation": "Validation", "test": "Test_v2"}


@register
class Isic(Dataset):
    """ISIC 2017: 2000 training, 150 validation and 600 test images of skin lesions."""

    name = "isic"
    default_folder = Path("data/isic2017")
    variable = "SEGCONF_DATA"
    archives = ISIC_ARCHIVES

    def find(self, root: Path, hold_out: HoldOut) -> CaseSet:
        """Cases of the archive folders that are there; a part of them is a valid data set."""
        found = find_archives(self.name, root, hold_out)
        if found is None:
            raise DataError(_nothing_found(root))
        return found


def find_archives(name: str, root: Path, hold_out: HoldOut) -> CaseSet | None:
    """Cases in the layout of the archives; None where there are neither training nor test images.

    Without a validation folder, a fraction of the training images is held out for validation.
    """
    parts = {part: _isic_part(root, archive) for part, archive in ISIC_PARTS.items()}
    if not parts["training"].cases and not parts["test"].cases:
        return None
    notes = [note for part in parts.values() for note in part.notes]
    training, validation = parts["training"].cases, parts["validation"].cases
    if not validation and training:
        training, validation = hold_out_fraction(training, hold_out.validation)
        notes.append(
            f"{root}: no validation folder; {len(validation)} training images are held out for it"
        )
    if not parts["test"].cases:
        notes.append(f"{root}: no test folder; a run can be evaluated on the val split only")
    problems = tuple(problem for part in parts.values() for problem in part.problems)
    held_out = frozenset() if parts["validation"].cases else frozenset({"validation"})
    test = parts["test"].cases
    return CaseSet(name, root, training, validation, test, problems, tuple(notes), held_out)


def _isic_part(root: Path, archive: str) -> PairedFolder:
    images = root / f"ISIC-2017_{archive}_Data"
    if not images.is_dir():
        return PairedFolder()
    return pair_folder(images, root / f"ISIC-2017_{archive}_Part1_GroundTruth")


def _nothing_found(root: Path) -> str:
    looked = ", ".join(f"{root}/ISIC-2017_{archive}_Data" for archive in ISIC_PARTS.values())
    return (
        f"{root.absolute()}: no ISIC 2017 images here. Looked for {looked}.\n"
        "Get them (about 12 GB to download) with:\n"
        f"  segconf data isic --download --data {root}\n"
        "or name the folder that holds the extracted archives with SEGCONF_DATA."
    )
