"""Where a command may write: in no input, and over nothing but its own earlier results."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from segconf.errors import FileError
from segconf.files import is_regular, unwritable


def check_output(
    out: Path,
    *,
    inputs: Iterable[Path] = (),
    within: Path | None = None,
    known: Sequence[str] = (),
    mark: str = "",
) -> None:
    """Refuse an output folder that could overwrite something, before any work.

    Args:
        out: new, empty, or with nothing but what an earlier call has written.
        inputs: folders and files that are read: `out` is neither one of them nor lies in one.
        within: a folder in an input that is meant for outputs, such as `evaluation/` of a run.
        known: names, or patterns such as `*.png`, of what may be in the folder already.
        mark: a file that an earlier call leaves behind: where it is, all others are its own.

    Raises:
        FileError: it lies in an input, holds something else, or is no folder.
    """
    _check_inputs(out, inputs, within, "Choose another folder.")
    try:
        names = sorted(path.name for path in out.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise unwritable(out, error) from error
    others = [name for name in names if not _is_known(name, known)]
    if others and not (mark and is_regular(out / mark)):
        reason = f"it holds other files, such as {others[0]}"
        raise FileError(out, reason, "Choose a new or empty folder.")


def check_output_file(
    out: Path, *, inputs: Iterable[Path] = (), is_own: Callable[[Path], bool]
) -> None:
    """Refuse an output file that lies in an input or would replace another one, before any work.

    Args:
        out: new, or a file that an earlier call has written.
        inputs: folders and files that are read.
        is_own: whether a regular file is one of those that the caller writes.

    Raises:
        FileError: it lies in an input, or is something else already.
    """
    _check_inputs(out, inputs, None, "Choose another name.")
    if os.path.lexists(out) and not (is_regular(out) and is_own(out)):
        raise FileError(out, "something else is there", "Choose another name.")


def _check_inputs(out: Path, inputs: Iterable[Path], within: Path | None, way_out: str) -> None:
    target = _resolved(out)
    if within is not None and within.resolve() in target.parents:
        return
    for given in inputs:
        if target.is_relative_to(given.resolve()):
            raise FileError(out, f"it lies in {given}, which is read", way_out)


def _resolved(out: Path) -> Path:
    """The path without links.

    Raises:
        FileError: its links go round in a circle, or it is none at all.
    """
    try:
        return out.resolve()
    except (OSError, RuntimeError) as error:
        raise FileError(out, "its links lead nowhere", "Choose another name.") from error
    except ValueError as error:
        raise FileError(out, str(error), "Choose another name.") from error


def _is_known(name: str, known: Sequence[str]) -> bool:
    return name.startswith(".") or any(PurePosixPath(name).match(pattern) for pattern in known)
