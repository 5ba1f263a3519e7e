"""Fail unless the wheel in the given folder holds both packages and nothing else."""

import sys
import zipfile
from pathlib import Path

wheels = sorted(Path(sys.argv[1]).glob("segconf-*.whl"))
names = zipfile.ZipFile(wheels[-1]).namelist() if wheels else []
folders = {name.partition("/")[0] for name in names}
stray = sorted(f for f in folders if f not in {"segconf", "segconf_cli"} and ".dist-info" not in f)
NEEDED = (
    "segconf/__init__.py",
    "segconf_cli/main.py",
    "segconf/models/weights/isic2017/best.safetensors",
    "segconf/models/weights/isic2017/MODEL_CARD.md",
)
missing = [name for name in NEEDED if name not in names]
if stray or missing or not wheels:
    sys.exit(f"{sys.argv[1]}: wheel has stray folders {stray} and misses {missing}")
