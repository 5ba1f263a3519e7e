"""DICOM images of a data set: called like their file, or like the folder of their slices."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from segconf.images.dicom_files import (
    group_files,
    identified,
    is_available,
    is_dicom,
    with_suffix,
)
from segconf.images.image_format import image_suffix


def is_dicom_image(path: Path) -> bool:
    """Whether a file is DICOM by its name, or by its content where the name says nothing."""
    suffix = image_suffix(path)
    return suffix.startswith(".dcm") or suffix == ".dicom" or (not suffix and is_dicom(path))


def dicom_images(folder: Path, files: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Names and paths of DICOM images: called like the file, or the folder of the slices."""
    if not is_available():
        for file in files:  # reading them says what is missing
            yield _without_suffix(file.relative_to(folder)).as_posix(), with_suffix(file)
        return
    images = [identified(image) for image in group_files(folder, files)]
    titles = Counter(image.title for image in images)
    for image in images:
        title = image.title.relative_to(folder)
        name = _without_suffix(title) if image.title.is_file() else title
        several = titles[image.title] > 1
        yield (name / image.path.stem if several else name).as_posix(), image.path


def _without_suffix(path: Path) -> Path:
    """The path without the suffix of an image; the last part of a UID is none."""
    return path.with_name(path.name[: len(path.name) - len(image_suffix(path))])
