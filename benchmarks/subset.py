"""A smaller ISIC 2017 in the layout of the archives, by links: for experiments that end today.

Which training images are kept follows from their ids alone, so everyone gets the same ones. The
validation and test images stay complete.

With --leave-out, images of a range of ids, which stands for their origin, are in no part. All of
them, from training and test, become the test images of a data set of its own, `OUT/left_out`.

Run: python benchmarks/subset.py SOURCE OUT --training 220 [--leave-out 0 999]
"""

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

PARTS = ("Training", "Validation", "Test_v2")
SUFFIXES = {"Data": ".jpg", "Part1_GroundTruth": "_segmentation.png"}


def digest(case: str) -> str:
    """A random but repeatable order of the ids."""
    return hashlib.sha256(case.encode()).hexdigest()


def main() -> None:
    """Link the chosen images and their masks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--training", type=int, default=220)
    parser.add_argument("--leave-out", type=int, nargs=2, metavar=("FIRST", "LAST"))
    options = parser.parse_args()
    first, last = options.leave_out or (0, -1)
    for part in PARTS:
        images = options.source / f"ISIC-2017_{part}_Data"
        cases = sorted((path.stem for path in images.glob("ISIC_*.jpg")), key=digest)
        left_out = [case for case in cases if first <= int(case.rpartition("_")[2]) <= last]
        others = [case for case in cases if case not in left_out]
        kept = others[: options.training] if part == "Training" else others
        link(options.source, kept, part, options.out, part)
        if part != "Validation":
            link(options.source, left_out, part, options.out / "left_out", "Test_v2")
        print(f"{part}: {len(kept)} of {len(cases)} images, {len(left_out)} left out")


def link(source: Path, cases: Sequence[str], part: str, out: Path, as_part: str) -> None:
    """Link images and masks of a part of the source as those of a part of another data set."""
    for kind, suffix in SUFFIXES.items():
        if cases:
            folder = out / f"ISIC-2017_{as_part}_{kind}"
            folder.mkdir(parents=True, exist_ok=True)
        for case in cases:
            file = (source / f"ISIC-2017_{part}_{kind}" / f"{case}{suffix}").resolve()
            (folder / file.name).symlink_to(file)


if __name__ == "__main__":
    main()
