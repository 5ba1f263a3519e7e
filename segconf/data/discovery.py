"""Data sets by name: the ISIC 2017 archives, the synthetic demo, or any folder of images."""

import os
from dataclasses import dataclass
from pathlib import Path

from segconf.data.cases import CaseSet, PairedFolder, pair_folder
from segconf.data.splits import hold_out
from segconf.errors import DataError

DEFAULT_FOLDERS = {"isic": Path("data/isic2017"), "demo": Path("data/demo")}
ISIC_PARTS = {"training": "Training", "validation": "Validation", "test": "Test_v2"}


@dataclass(frozen=True, slots=True)
class HoldOut:
    """Shares taken from a training folder that comes without its own `val/` or `test/`."""

    validation: float = 0.15
    test: float = 0.15


def dataset_folder(dataset: str, data: Path | None) -> Path:
    """Where a data set lies: `--data`, else SEGCONF_DATA, else the default of that data set."""
    if dataset not in DEFAULT_FOLDERS:
        return Path(dataset)
    if data is not None:
        return data
    if dataset == "isic" and os.environ.get("SEGCONF_DATA"):
        return Path(os.environ["SEGCONF_DATA"])
    return DEFAULT_FOLDERS[dataset]


def find_cases(dataset: str, data: Path | None = None, *, shares: HoldOut | None = None) -> CaseSet:
    """Cases of a data set by part. Files are listed and paired; pictures are not yet opened.

    Args:
        dataset: `isic`, `demo`, or a folder with `images/` and `masks/`.
        data: folder of the ISIC archives, or of the generated demo images.
        shares: what is held out where a folder has no `val/` or `test/` of its own.
    """
    root = dataset_folder(dataset, data)
    shares = shares or HoldOut()
    match dataset:
        case "isic" | "demo":
            return _find_isic(dataset, root, shares)
        case _:
            return _find_folder(root, shares)


def _find_isic(name: str, root: Path, shares: HoldOut) -> CaseSet:
    parts = {part: _isic_part(root, archive) for part, archive in ISIC_PARTS.items()}
    if not parts["training"].cases and not parts["test"].cases:
        raise DataError(_nothing_found(name, root))
    notes = [note for part in parts.values() for note in part.notes]
    training, validation = parts["training"].cases, parts["validation"].cases
    if not validation and training:
        training, validation = hold_out(training, shares.validation)
        notes.append(
            f"{root}: no validation folder; {len(validation)} training images are held out for it"
        )
    if not parts["test"].cases:
        notes.append(f"{root}: no test folder; `segconf evaluate` can use --split val only")
    problems = tuple(problem for part in parts.values() for problem in part.problems)
    held_out = frozenset() if parts["validation"].cases else frozenset({"validation"})
    test = parts["test"].cases
    return CaseSet(name, root, training, validation, test, problems, tuple(notes), held_out)


def _isic_part(root: Path, archive: str) -> PairedFolder:
    images = root / f"ISIC-2017_{archive}_Data"
    if not images.is_dir():
        return PairedFolder()
    return pair_folder(images, root / f"ISIC-2017_{archive}_Part1_GroundTruth")


def _find_folder(root: Path, shares: HoldOut) -> CaseSet:
    if not (root / "images").is_dir():
        raise DataError(_not_a_dataset(root))
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
        training, test = hold_out(training, shares.test, salt="test")
        notes.append(f"{root}: no test/ folder; {len(test)} images with masks are held out for it")
    if not validation:
        share = shares.validation / (1 - shares.test) if test else shares.validation
        training, validation = hold_out(training, share)
        notes.append(
            f"{root}: no val/ folder; {len(validation)} images with masks are held out for it"
        )
    problems = tuple(problem for part in parts for problem in part.problems)
    held = frozenset(held_out)
    return CaseSet(root.name, root, training, validation, test, problems, tuple(notes), held)


def _nothing_found(name: str, root: Path) -> str:
    if name == "demo":
        return f"{root}: no demo images here. Make them with:\n  segconf data demo --data {root}"
    looked = ", ".join(f"{root}/ISIC-2017_{archive}_Data" for archive in ISIC_PARTS.values())
    return (
        f"{root.absolute()}: no ISIC 2017 images here. Looked for {looked}.\n"
        "Get them (about 12 GB to download) with:\n"
        f"  segconf data isic --download --data {root}\n"
        "or name the folder that holds the extracted archives with --data DIR or SEGCONF_DATA."
    )


def _not_a_dataset(root: Path) -> str:
    way_out = "Expected `isic`, `demo`, or a folder with images/ and masks/."
    if not root.exists():
        return f"{root}: no such folder or data set. {way_out}"
    if not root.is_dir():
        return f"{root}: a file. {way_out}"
    if any(root.glob("ISIC-2017_*")):
        return (
            f"{root}: this folder has the layout of the ISIC 2017 archives. "
            f"Name it with: isic --data {root}"
        )
    found = sorted(path.name for path in root.iterdir())[:5]
    return f"{root}: has no images/ folder (it holds {', '.join(found) or 'nothing'}). {way_out}"
