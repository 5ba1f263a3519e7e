"""Check of the machine: versions, devices, disk space, encoder weights, data and runs."""

import importlib.metadata
import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from segconf import __version__
from segconf.data.datasets.dataset import dataset_folder, find_cases
from segconf.errors import SegconfError
from segconf.runs.run_folder import newest_run

EXTRAS = {"dicom": "DICOM files", "onnx": "ONNX files", "dev": "the development of segconf"}
"""What the optional parts of the installation are for."""
ENOUGH_DISK = 10e9
ENOUGH_MEMORY = 4e9
MEMORY = Path("/proc/meminfo")
"""Where Linux tells how much memory there is."""
WEIGHTS = (".pth", ".safetensors")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what it is.
        found: what was found.
        advice: what to do about it; empty when all is well.
    """

    subject: str
    found: str
    advice: str = ""


def examine(folder: Path) -> Iterator[Finding]:
    """Look at the machine, as it matters for work in a folder."""
    yield Finding("segconf", f"{__version__}, python {platform.python_version()}")
    yield _packages()
    for name, use in EXTRAS.items():
        yield _extra(name, use)
    yield _device()
    yield _memory()
    yield _disk(folder)
    yield _weights()
    yield _data()
    yield _runs(folder)


def _packages() -> Finding:
    """What segconf cannot work without."""
    versions, missing = _installed("")
    advice = f"install {', '.join(missing)}: pip install --upgrade segconf" if missing else ""
    return Finding("packages", ", ".join(versions), advice)


def _extra(name: str, use: str) -> Finding:
    """What is only needed for one use; its absence is no fault."""
    versions, missing = _installed(name)
    if not missing:
        return Finding(f"extra {name}", ", ".join(versions))
    lacking = f"{', '.join(missing)} not installed"
    return Finding(f"extra {name}", lacking, f"for {use}: pip install 'segconf[{name}]'")


def _installed(extra: str) -> tuple[list[str], list[str]]:
    """Requirements of segconf, or of an extra: those that are installed, and those that are not."""
    versions, missing = [], []
    for line in importlib.metadata.requires("segconf") or ():
        requirement, _, condition = line.partition(";")
        if (f'"{extra}"' if extra else "") != condition.replace("'", '"').removeprefix(
            " extra == "
        ):
            continue
        name = re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return versions, missing


def _device() -> Finding:
    if torch.cuda.is_available():
        names = (
            f"{torch.cuda.get_device_name(index)} "
            f"({torch.cuda.get_device_properties(index).total_memory / 1e9:.0f} GB)"
            for index in range(torch.cuda.device_count())
        )
        return Finding("device", "cuda: " + ", ".join(names))
    if torch.backends.mps.is_available():
        return Finding("device", "mps: the graphics processor of this Mac")
    return Finding(
        "device",
        f"cpu with {os.cpu_count()} cores, no graphics processor that PyTorch can use",
        "prediction is fine; for training, configs/isic2017_cpu.yaml fits",
    )


def _memory() -> Finding:
    free = _free_memory()
    if free is None:
        return Finding("memory", "unknown on this system")
    advice = "close other programs, or use a smaller batch" if free < ENOUGH_MEMORY else ""
    return Finding("memory", f"{free / 1e9:.1f} GB free", advice)


def _free_memory() -> int | None:
    """Bytes that programs can have; None where the system does not tell.

    Linux counts what it keeps of files as used, but gives it up when a program needs it.
    """
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB$", MEMORY.read_text(), re.MULTILINE)
    except (OSError, ValueError):
        found = None
    if found:
        return 1024 * int(found[1])
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    advice = "runs of the paper's size need some gigabytes: choose another folder"
    return Finding(
        "disk", f"{free / 1e9:.1f} GB free in this folder", advice if free < ENOUGH_DISK else ""
    )


def _weights() -> Finding:
    folder = os.environ.get("SEGCONF_WEIGHTS")
    if not folder:
        return Finding(
            "encoder weights",
            "SEGCONF_WEIGHTS is not set: `imagenet` is fetched from the model hub",
            "offline, set SEGCONF_WEIGHTS to a folder of .pth or .safetensors files, or train with "
            "model.encoder_weights=none",
        )
    path = Path(folder)
    files = sorted(file.name for file in path.glob("*") if file.suffix in WEIGHTS)
    if not files:
        return Finding(
            "encoder weights",
            f"none in SEGCONF_WEIGHTS = {folder}",
            "put .pth or .safetensors files there, or name another folder",
        )
    return Finding("encoder weights", f"{', '.join(files)} in {folder}")


def _data() -> Finding:
    root = dataset_folder("isic", None)
    try:
        found = find_cases("isic")
    except SegconfError:
        return Finding(
            "ISIC 2017",
            f"not in {root}",
            "segconf data isic --download, or set SEGCONF_DATA to the folder of the archives; "
            "`demo` and folders of your own need neither",
        )
    counts = f"{len(found.training)} training, {len(found.validation)} validation"
    problems = f"{len(found.problems)} problems: segconf data isic --verify"
    return Finding(
        "ISIC 2017",
        f"{counts} and {len(found.test)} test images in {root}",
        problems if found.problems else "",
    )


def _runs(folder: Path) -> Finding:
    try:
        return Finding("runs", f"newest finished run: {newest_run(folder / 'runs')}")
    except SegconfError:
        return Finding("runs", "none finished in runs/", "segconf demo, or segconf train DATASET")
