"""DICOM files: finding them by content, grouping them into images, and naming these by their UIDs.

An image is a single file (a photograph, a slice) or a series of slices, which is a volume. Names of
files and folders may hold patient data, so an image is known by a path that holds none: the folder
that was searched and the UID, `FOLDER/UID.dcm` for a file and `FOLDER/UID.dcmseries` for a volume.
Where names may be shown, a file without a suffix is known by its name and `.dcm`. Such a path need
not exist. It is resolved by searching the folder.
"""

import hashlib
import importlib.util
import struct
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segconf.errors import DataError
from segconf.files import open_regular
from segconf.images.image_format import image_suffix
from segconf.images.types import describe_os_error, reason

PICTURE_SUFFIX = ".dcm"
VOLUME_SUFFIX = ".dcmseries"
FILE_SUFFIXES = (PICTURE_SUFFIX, ".dicom")
"""Of the files themselves; many have none."""
INSTALL = "pip install 'segconf[dicom]'"
_PREAMBLE = 128
_MAGIC = b"DICM"
_ENCRYPTED = b"\x30\x82"  # the start of a CMS envelope: a DICOM secure file
_DIRECTORY = "1.2.840.10008.1.3.10"
_TAGS = [
    *("SOPInstanceUID", "SOPClassUID", "SeriesInstanceUID", "NumberOfFrames", "Rows", "Columns"),
    *("ImagePositionPatient", "ImageOrientationPatient", "SamplesPerPixel", "Modality"),
]
MASK_CLASSES = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")
"""Segmentation objects, with one frame per segment or with labels."""
_LOCK = threading.Lock()
_KNOWN: dict[Path, tuple[Path, ...]] = {}


@dataclass(frozen=True, slots=True)
class DicomImage:
    """Files that make up one image.

    Attributes:
        path: by which it is known: folder and UID.
        files: one, or the slices of a series in no order.
        title: how a person would call it: the name of the file, or of the folder of the slices.
    """

    path: Path
    files: tuple[Path, ...]
    title: Path


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the grouping needs to know about a file."""

    file: Path
    sop: str
    series: str
    frames: int
    is_placed: bool
    is_mask: bool = False


def is_available() -> bool:
    """Whether pydicom is installed."""
    return importlib.util.find_spec("pydicom") is not None


def is_dicom(path: Path) -> bool:
    """Whether the content of a file is DICOM, whatever its name."""
    try:
        with open_regular(path) as stream:
            return stream.read(_PREAMBLE + len(_MAGIC))[_PREAMBLE:] == _MAGIC
    except OSError:
        return False


def group_files(root: Path, files: Sequence[Path]) -> list[DicomImage]:
    """Images that files make up, known by paths below `root`.

    Slices with a place in the patient that share a series are one volume, and so are the frames of
    a file. Everything else is a picture of its own. Files that cannot be read are pictures too:
    reading them says what is wrong. Directories of a medium (DICOMDIR) are left out.
    """
    series: dict[str, list[_Entry]] = {}
    found: list[DicomImage] = []
    for file in sorted(files):
        entry = _describe(file)
        if entry is None:
            found.append(_known(root / f"unreadable-{_digest(file)}{PICTURE_SUFFIX}", [file], file))
        elif entry.sop == _DIRECTORY:
            continue
        elif entry.frames > 1 and not entry.is_mask:
            found.append(_known(root / f"{entry.sop}{VOLUME_SUFFIX}", [file], file))
        elif entry.is_placed and entry.series:
            series.setdefault(entry.series, []).append(entry)
        else:
            found.append(_known(root / f"{entry.sop}{PICTURE_SUFFIX}", [file], file))
    for uid, entries in series.items():
        own = [entry.file for entry in entries]
        if len(own) == 1:
            found.append(_known(root / f"{entries[0].sop}{PICTURE_SUFFIX}", own, own[0]))
        else:
            found.append(_known(root / f"{uid}{VOLUME_SUFFIX}", own, own[0].parent))
    return sorted(_apart(root, found), key=lambda image: image.path)


def _apart(root: Path, images: Sequence[DicomImage]) -> Iterator[DicomImage]:
    """Images under names of their own: copies that share a UID get a number of their content."""
    used = Counter(image.path for image in images)
    for image in images:
        if used[image.path] == 1:
            yield image
            continue
        name = f"{image.path.stem}-{_digest(image.files[0])}{image.path.suffix}"
        yield _known(root / name, image.files, image.title)


def _known(path: Path, files: Sequence[Path], title: Path) -> DicomImage:
    with _LOCK:
        _KNOWN[path] = tuple(files)
    return DicomImage(path, tuple(files), title)


def identified(image: DicomImage) -> DicomImage:
    """The same image under names that people gave: of its file, or of the folder of its slices."""
    if len(image.files) == 1 and image.path.suffix == PICTURE_SUFFIX:
        named = with_suffix(image.title)
        if named == image.title:
            return DicomImage(named, image.files, image.title)
        if not named.exists():
            return _known(named, image.files, image.title)
    folder = image.title if image.title.is_dir() else image.title.parent
    return _known(folder / image.path.name, image.files, image.title)


def with_suffix(file: Path) -> Path:
    """The path by which a picture is known under its own name: it says how the file is read."""
    return file if image_suffix(file) else file.with_name(file.name + PICTURE_SUFFIX)


def files_of(path: Path) -> tuple[Path, ...]:
    """The files of an image by its path, which is a file or stands for some.

    Raises:
        DataError: there is none.
    """
    with _LOCK:
        known = _KNOWN.get(path)
    if known is not None:
        return known
    if path.is_file() or not path.parent.is_dir():
        return (path,)
    if path.suffix == PICTURE_SUFFIX and path.with_suffix("").is_file():
        return (path.with_suffix(""),)
    below = (file for file in path.parent.rglob("*") if file.is_file() and is_dicom(file))
    group_files(path.parent, list(below))
    with _LOCK:
        return _KNOWN.get(path, (path,))


def known_series(uid: str) -> Path | None:
    """The path of a series that was found before; None where it was not."""
    with _LOCK:
        return next((path for path in _KNOWN if path.name == f"{uid}{VOLUME_SUFFIX}"), None)


def _describe(file: Path) -> _Entry | None:
    """What a file says; None where it cannot be read."""
    try:
        with open_dicom(file, tags=_TAGS) as dataset:
            kind = str(dataset.file_meta.get("MediaStorageSOPClassUID", ""))
            if kind == _DIRECTORY:
                return _Entry(file, _DIRECTORY, "", 1, is_placed=False)
            sop = _uid(dataset, "SOPInstanceUID")
            if not sop:
                return None
            return _Entry(
                file,
                sop,
                _uid(dataset, "SeriesInstanceUID"),
                int(dataset.get("NumberOfFrames") or 1),
                is_placed="ImagePositionPatient" in dataset,
                is_mask=str(dataset.get("SOPClassUID", "")) in MASK_CLASSES,
            )
    except DataError:
        return None


def _uid(dataset: Any, name: str) -> str:
    """A UID that is safe as a name of a file; empty where it is none."""
    value = str(dataset.get(name, "") or "")
    return value if value and set(value) <= set("0123456789.") else ""


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError:
        return hashlib.sha256(file.name.encode()).hexdigest()[:16]


@contextmanager
def open_dicom(
    file: Path, *, shown: Path | None = None, tags: list[str] | None = None
) -> Iterator[Any]:
    """The data set of a file; whatever pydicom raises inside the block is a `DataError`.

    Args:
        file: the file.
        shown: path for messages, where the name of the file may not be shown.
        tags: the only elements to read, without pixels; everything when not given.
    """
    shown = shown or file
    if not is_available():
        raise DataError(f"{shown}: DICOM files need pydicom. Install it: {INSTALL}")
    import pydicom
    from pydicom.errors import BytesLengthException, InvalidDicomError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # remarks on values; what matters is an exception
            _check_start(file, shown)
            yield pydicom.dcmread(file, stop_before_pixels=tags is not None, specific_tags=tags)
    except (InvalidDicomError, BytesLengthException, *_BROKEN) as error:
        if isinstance(error, OSError) and (message := describe_os_error(shown, error)):
            raise message from error
        raise DataError(
            f"{shown}: not a readable DICOM file ({reason(error)}). "
            "Copy or export it again, or remove it."
        ) from error


_BROKEN = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError),
    *(AttributeError, NotImplementedError, RuntimeError, RecursionError, struct.error),
)


def _check_start(file: Path, shown: Path) -> None:
    with open_regular(file) as stream:
        start = stream.read(_PREAMBLE + len(_MAGIC))
    if not start:
        raise DataError(f"{shown}: the file is empty. Copy it again, or remove it.")
    if start.startswith(_ENCRYPTED):
        raise DataError(f"{shown}: the file is encrypted. Decrypt it, and give the plain file.")
    if start[_PREAMBLE:] != _MAGIC:
        raise DataError(
            f"{shown}: the content is not DICOM (DICM is missing at byte 128). "
            "Export it again as a DICOM file, or remove it."
        )
