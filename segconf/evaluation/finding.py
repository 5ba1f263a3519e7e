"""The images of a run's data set on which it can be judged."""

from pathlib import Path

from segconf.data import Case, HoldOut, find_cases, raise_problems
from segconf.errors import DataError
from segconf.runs import RunFolder


def masked_cases(run: RunFolder, split: str, data: Path | None) -> tuple[tuple[Case, ...], Path]:
    """Cases with masks of a split, and the folder of the data set.

    Args:
        run: the run whose data set it is.
        split: test or val.
        data: where the data set lies, if it has moved since.
    """
    config, used = run.config(), run.data()
    shares = HoldOut(config.data.validation_share, config.data.test_share)
    where = data or (Path(used.data) if used.data else None)
    found = used.arranged(find_cases(used.dataset, where, shares=shares))
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
