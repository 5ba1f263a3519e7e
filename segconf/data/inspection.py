"""Contents of a data set: images, masks, sizes and problems, part by part."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from segconf.data.cases import Case, CaseSet
from segconf.data.preprocessing import Preprocessing
from segconf.devices import usable_processors
from segconf.errors import DataError
from segconf.images.io import read_header
from segconf.images.masks import check_mask_grid, read_mask
from segconf.images.types import Header


@dataclass(frozen=True, slots=True)
class PartReport:
    """One part of a data set."""

    name: str
    images: int
    masks: int
    """Or labels."""
    sizes: tuple[tuple[int, int], ...]  # distinct (height, width), smallest first


@dataclass(frozen=True, slots=True)
class DataReport:
    """All parts, and everything that is wrong with them."""

    root: Path
    parts: tuple[PartReport, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    class_names: tuple[str, ...] = ()
    """Of labels; none of masks."""


@dataclass(frozen=True, slots=True)
class _Finding:
    size: tuple[int, int] | None
    problems: tuple[str, ...]


def describe(
    found: CaseSet,
    *,
    verify: Preprocessing | None,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> DataReport:
    """Read the header of every file or, to verify, decode every pixel of every file.

    Args:
        found: the data set.
        verify: how an experiment reads images and masks: both are decoded completely, with its
            channels, and the masks must hold its classes. None for the headers alone.
        on_progress: called with the name of the part, the cases done and their number.
    """
    problems = list(found.problems)
    parts: list[PartReport] = []
    for name, cases in found.parts().items():
        # The slices of a volume are one file; records were read when they were found.
        files = {case.image_path: case for case in cases if case.record is None}
        findings = _inspect_all(
            list(files.values()), verify=verify, report=_named(name, on_progress)
        )
        problems += [problem for finding in findings for problem in finding.problems]
        sizes = {finding.size for finding in findings if finding.size is not None}
        sizes |= {found.size} if found.size is not None and cases else set()
        masks = sum(case.is_labeled for case in cases)
        parts.append(PartReport(name, len(cases), masks, tuple(sorted(sizes))))
    listed = tuple(dict.fromkeys(problems))
    return DataReport(found.root, tuple(parts), listed, found.notes, found.class_names)


def _named(
    name: str, on_progress: Callable[[str, int, int], None] | None
) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if on_progress is not None:
            on_progress(name, done, total)

    return report


def _inspect_all(
    cases: Sequence[Case], *, verify: Preprocessing | None, report: Callable[[int, int], None]
) -> list[_Finding]:
    findings: list[_Finding] = []
    pool = ThreadPoolExecutor(max_workers=usable_processors())
    try:
        for finding in pool.map(lambda case: _inspect(case, verify), cases):
            findings.append(finding)
            report(len(findings), len(cases))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return findings


def _inspect(case: Case, verify: Preprocessing | None) -> _Finding:
    problems: list[str] = []
    header: Header | None = None
    try:
        header = read_header(case.image_path)
        if verify is not None:
            verify.read(case.image_path)
    except DataError as error:
        problems.append(str(error))
    if case.mask_path is not None:
        try:
            _inspect_mask(case.mask_path, header, verify)
        except DataError as error:
            problems.append(str(error))
    return _Finding(None if header is None else header.size, tuple(problems))


def _inspect_mask(path: Path, image: Header | None, verify: Preprocessing | None) -> None:
    if verify is not None:
        read_mask(path, classes=verify.classes, ignore_255=verify.ignore_255, image=image)
    elif image is not None:
        check_mask_grid(path, read_header(path), image)
