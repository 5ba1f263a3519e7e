"""The labeled cases of a split of a run."""

from pathlib import Path

from segconf.data import Case, HoldOut, find_cases, raise_problems
from segconf.errors import DataError
from segconf.runs import RunFolder


def labeled_cases(run: RunFolder, data: Path | None, split: str) -> tuple[tuple[Case, ...], Path]:
    """Cases of the test or validation split that have a mask, and the root of the data set.

    Args:
        run: names the data set and how it was divided.
        data: where it lies now, if not where the run found it.
        split: test or val.
    """
    config, used = run.config(), run.data()
    shares = HoldOut(config.data.validation_share, config.data.test_share)
    where = data or (Path(used.data) if used.data else None)
    found = find_cases(used.dataset, where, shares=shares)
    raise_problems(found.problems, found.root)
    part = found.test if split == "test" else found.validation
    cases = tuple(case for case in part if case.mask_path is not None)
    if not cases:
        other = "val" if split == "test" else "test"
        raise DataError(
            f"{found.root}: no {split} images with masks. Name another folder with --data, or "
            f"use --split {other}."
        )
    return cases, found.root
