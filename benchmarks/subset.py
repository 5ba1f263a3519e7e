"""A smaller ISIC 2017 in the layout of the archives, by links: for experiments that end today.

Which training images are kept follows from their ids alone, so everyone gets the same ones. The
validation and test images stay complete.

Run: python benchmarks/subset.py SOURCE OUT --training 220
"""

import argparse
import hashlib
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
    options = parser.parse_args()
    for part in PARTS:
        images = options.source / f"ISIC-2017_{part}_Data"
        cases = sorted((path.stem for path in images.glob("ISIC_*.jpg")), key=digest)
        kept = cases[: options.training] if part == "Training" else cases
        for kind, suffix in SUFFIXES.items():
            folder = options.out / f"ISIC-2017_{part}_{kind}"
            folder.mkdir(parents=True, exist_ok=True)
            for case in kept:
                file = (options.source / folder.name / f"{case}{suffix}").resolve()
                (folder / file.name).symlink_to(file)
        print(f"{part}: {len(kept)} of {len(cases)} images")


if __name__ == "__main__":
    main()
