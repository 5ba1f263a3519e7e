"""ISIC 2017 in the layout of its archives: part 1 (lesions) and part 3 (diagnoses)."""

from pathlib import Path

from segconf.data.archives import ISIC_ARCHIVES
from segconf.data.cases import CaseSet, PairedFolder, pair_folder
from segconf.data.datasets.dataset import Dataset, FindOptions, register
from segconf.data.label_tables import TABLE, read_label_table
from segconf.data.labeled_parts import labeled_part, labeled_set, list_images
from segconf.data.splits import hold_out_fraction
from segconf.errors import DataError

ISIC_PARTS = {"training": "Training", "validation": "Validation", "test": "Test_v2"}
NEVUS = "nevus"
"""Diagnosis of an image that is 0 in both columns of part 3."""


@register
class Isic(Dataset):
    """ISIC 2017: 2000 training, 150 validation and 600 test images of skin lesions."""

    name = "isic"
    tasks = ("segmentation", "classification")
    default_folder = Path("data/isic2017")
    variable = "SEGCONF_DATA"
    archives = ISIC_ARCHIVES

    def find(self, root: Path, options: FindOptions) -> CaseSet:
        """Cases of the archive folders that are there; a part of them is a valid data set."""
        if options.task == "classification":
            return _find_diagnoses(self.name, root, options)
        found = find_archives(self.name, root, options)
        if found is None:
            raise DataError(_nothing_found(root))
        return found


def find_archives(name: str, root: Path, options: FindOptions) -> CaseSet | None:
    """Cases in the layout of the archives; None where there are neither training nor test images.

    Without a validation folder, a fraction of the training images is held out for validation.
    """
    parts = {part: _isic_part(root, archive) for part, archive in ISIC_PARTS.items()}
    if not parts["training"].cases and not parts["test"].cases:
        return None
    notes = [note for part in parts.values() for note in part.notes]
    training, validation = parts["training"].cases, parts["validation"].cases
    if not validation and training:
        training, validation = hold_out_fraction(training, options.validation)
        notes.append(
            f"{root}: no validation folder; {len(validation)} training images are held out for it"
        )
    if not parts["test"].cases:
        notes.append(f"{root}: no test folder; a run can be evaluated on the val split only")
    problems = tuple(problem for part in parts.values() for problem in part.problems)
    held_out = frozenset() if parts["validation"].cases else frozenset({"validation"})
    test = parts["test"].cases
    return CaseSet(name, root, training, validation, test, problems, tuple(notes), held_out)


def _find_diagnoses(name: str, root: Path, options: FindOptions) -> CaseSet:
    """The same images with the labels of part 3: melanoma, seborrheic keratosis, nevus."""
    folders = {part: root / f"ISIC-2017_{archive}_Data" for part, archive in ISIC_PARTS.items()}
    there = {part: folder for part, folder in folders.items() if folder.is_dir()}
    if "training" not in there:
        raise DataError(_nothing_found(root))
    parts = {}
    for part, folder in there.items():
        path, is_shared = _diagnosis_table(root, ISIC_PARTS[part], options)
        table = read_label_table(path, class_names=options.class_names, other=NEVUS)
        parts[part] = labeled_part(table, list_images(folder), complete=not is_shared)
    return labeled_set(name, root, parts, options)


def _diagnosis_table(root: Path, archive: str, options: FindOptions) -> tuple[Path, bool]:
    """The table of a part, and whether it may list images of other parts too."""
    own = root / f"ISIC-2017_{archive}_Part3_GroundTruth.csv"
    shared = [root / TABLE, root.with_name(f"{root.name}_part3") / TABLE]
    if options.labels is not None:
        return options.labels, True
    if own.is_file():
        return own, False
    for path in shared:
        if path.is_file():
            return path, True
    looked = ", ".join(str(path) for path in (own, *shared))
    raise DataError(
        f"{root}: no table of diagnoses (looked for {looked}). Name it with data.labels."
    )


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
