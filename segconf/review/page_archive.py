"""The zip file that the page of a model exports, taken into a prediction folder.

The folder is new, or was made from an earlier zip file of the same page, which then gets the cases
that it does not have. A folder that `predict` wrote gets the decisions only.
"""

import hashlib
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np

from segconf.errors import DataError
from segconf.files import inside, make_folder, read_bytes, write_bytes, write_text
from segconf.outputs import check_output
from segconf.results.maps import Maps, prepare_folders, write_row
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.results.structures import write_structures
from segconf.review.page_maps import page_map
from segconf.review.pictures import case_scale
from segconf.review.store import ImportReport, ReviewStore

CORRECTIONS = "corrections.json"
KNOWN = (
    *("run.json", CORRECTIONS, "masks/**/*.png", "confidence/**/*.png"),
    *("review/rows/**/*.json", "review/images/**/*.jpg", "review/thumbnails/**/*.jpg"),
)
"""What is taken out of the file."""
LARGEST = 16_000_000_000
"""Bytes of all files that are taken out."""
_BINARY = 2
_WAY_OUT = "Give the .zip file that the page of a model exports."


def is_archive(path: Path) -> bool:
    """Whether a file is a zip file by its content."""
    return path.is_file() and zipfile.is_zipfile(path)


def import_archive(folder: PredictionFolder, path: Path) -> ImportReport:
    """Take cases, decisions and corrections of a zip file into a folder.

    Raises:
        DataError: the file is damaged, or about another model, other images or other masks.
        FileError: the folder holds something else, or cannot be written.
    """
    with tempfile.TemporaryDirectory() as place:
        unpacked = PredictionFolder(Path(place))
        _unpack(path, unpacked.path)
        record = unpacked.record()
        rows = unpacked.rows()
        _check_masks(path, unpacked, rows)
        if not folder.run_file.exists():
            check_output(folder.path)
            make_folder(folder.path)
            folder.write_record(record)
        if folder.record().id == record.id:
            there = {row.case for row in folder.rows()}
            for row in rows:
                if row.case not in there:
                    _take_case(unpacked, folder, row)
        return ReviewStore(folder).import_file(unpacked.path / CORRECTIONS)


def _unpack(path: Path, place: Path) -> None:
    """Write the known files of an archive below a folder."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [one for one in archive.infolist() if _is_known(one.filename)]
            if sum(one.file_size for one in members) > LARGEST:
                raise ValueError(f"holds more than {LARGEST} bytes")  # noqa: TRY301 - one message
            for member in members:
                write_bytes(inside(place, member.filename), archive.read(member))
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}). {_WAY_OUT}") from None
    if not (place / "run.json").is_file() or not (place / CORRECTIONS).is_file():
        raise DataError(f"{path}: run.json or {CORRECTIONS} is missing in it. {_WAY_OUT}")


def _is_known(name: str) -> bool:
    """Whether a name of the archive has one of the patterns, in any subfolder."""
    path = PurePosixPath(name)
    for pattern in KNOWN:
        folder, _, kind = pattern.partition("/**/")
        if name == pattern or (kind and name.startswith(f"{folder}/") and path.match(kind)):
            return True
    return False


def _check_masks(path: Path, unpacked: PredictionFolder, rows: list[CaseRow]) -> None:
    """Refuse masks that are not those which the rows speak of."""
    for row in rows:
        if row.error:
            continue
        mask, _ = unpacked.read_slice(row)
        found = hashlib.sha256(np.ascontiguousarray(mask).data).hexdigest()
        if mask.shape != (row.height, row.width) or found != row.mask_sha256:
            raise DataError(f"{path}: the mask of {row.case} was changed. Export it again.")


def _take_case(unpacked: PredictionFolder, folder: PredictionFolder, row: CaseRow) -> None:
    """Copy the files of a case, and make what follows from them."""
    prepare_folders(folder, row)
    if not row.error:
        suffix, case = folder.map_suffix(row), row.case
        for name in ("mask", "confidence"):
            source = getattr(unpacked, name)(case, suffix)
            write_bytes(getattr(folder, name)(case, suffix), read_bytes(source))
        for name in ("shown_image", "thumbnail"):
            write_bytes(getattr(folder, name)(case), read_bytes(getattr(unpacked, name)(case)))
        mask, levels = unpacked.read_slice(row)
        scale = unpacked.record().scale
        text = page_map(case, (mask, levels), case_scale(scale, row))
        write_text(folder.page_map(case), text)
        if scale.classes == _BINARY:  # with more, the maps do not tell the sums of each class
            write_structures(folder, row, Maps(mask[None], levels[None]))
    write_row(folder, row)
