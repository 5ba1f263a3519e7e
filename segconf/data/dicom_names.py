"""DICOM images of a data set: called like their file, or like the folder of their slices."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from segconf.images.dicom_files import group_files, identified, is_available, is_dicom
from segconf.images.image_format import image_suffix


def is_dicom_image(path: Path) -> bool:
    """Whether a file is DICOM by its name, or by its content where the name says nothing."""
    suffix = image_suffix(path)
    return suffix.startswith(".dcm") or suffix == ".dicom" or (not suffix and is_dicom(path))


def dicom_images(folder: Path, files: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Names and paths of DICOM images: called like the file, or the folder of the slices."""
    if not is_available():
        yield from ((str(file.relative_to(folder).with_suffix("")), file) for file in files)
        return
    images = [identified(image) for image in group_files(folder, files)]
    titles = Counter(image.title for image in images)
    for image in images:
        title = image.title.relative_to(folder)
        name = title.with_suffix("") if image.title.is_file() and title.suffix else title
        several = titles[image.title] > 1
        yield (name / image.path.stem if several else name).as_posix(), image.path
