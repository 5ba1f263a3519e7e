"""Fail unless the folder has one wheel that holds both packages, every file of them, nothing else.

Files are compared with those that git knows; without a checkout only with the most important ones.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"segconf", "segconf_cli"}
NEEDED = {
    "segconf/__init__.py",
    "segconf/demo.yaml",
    "segconf_cli/main.py",
    "segconf/models/weights/isic2017/best.safetensors",
    "segconf/models/weights/isic2017/MODEL_CARD.md",
}


def known_files():
    """Files of both packages by their names in a wheel; empty without a git checkout."""
    command = ["git", "ls-files", "-z", "segconf", "cli/segconf_cli"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return set()
    return {name.removeprefix("cli/") for name in listed.stdout.split("\0") if name}


def main(folder):
    """Compare the one wheel of the folder."""
    wheels = sorted(Path(folder).glob("segconf-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{folder}: {len(wheels)} wheels of segconf, expected one")
    with zipfile.ZipFile(wheels[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    known = known_files()
    stray = {name for name in names if name.partition("/")[0] not in PACKAGES}
    if known:
        stray |= names - known - NEEDED
    missing = (known | NEEDED) - names
    if stray or missing:
        sys.exit(f"{wheels[0]}: has stray files {sorted(stray)} and misses {sorted(missing)}")


if __name__ == "__main__":
    main(sys.argv[1])
