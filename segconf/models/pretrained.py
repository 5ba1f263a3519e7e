"""Pretrained models that come with segconf: where they lie, and what they say about themselves.

A pretrained model is a folder of `segconf/models/weights/` with the files of a run that a
prediction uses (`best.safetensors`, `calibration.json`, `ood.safetensors`), a description
(`model.json`) and a model card (`MODEL_CARD.md`). Its name is that of the folder.
"""

from importlib.resources import files
from pathlib import Path
from typing import Literal

from segconf.config.ranges import Count, Interval, Number, Probability, Section
from segconf.config.records import read_record
from segconf.errors import CheckpointError

DESCRIPTION = "model.json"
CARD = "MODEL_CARD.md"
WEIGHTS = "best.safetensors"
WAY_OUT = "Install segconf again."


class Measured(Section):
    """A number with its 95% interval over images."""

    value: Number
    interval: Interval


class Quality(Section):
    """What a model reached on images that it never saw, and that chose nothing."""

    images: Count
    on: str
    """Which images, in words."""
    dice: Measured
    jaccard: Measured
    aurc: Measured
    ece: Measured


class Description(Section):
    """Content of `model.json`."""

    format: Literal["segconf model 1"] = "segconf model 1"
    task: Literal["segmentation"]
    summary: str
    size: tuple[Count, Count]
    """Height and width of the network's grid."""
    encoder: str
    method: str
    class_names: tuple[str, ...]
    licence: str
    trained_on: str
    weights_sha256: str
    quality: Quality
    referred: Probability
    """Fraction of these images that would be referred."""


def pretrained_root() -> Path:
    """Folder of all pretrained models."""
    return Path(str(files("segconf.models").joinpath("weights")))


def pretrained_names() -> list[str]:
    """Names of the pretrained models that are there, in order."""
    return sorted(path.parent.name for path in pretrained_root().glob(f"*/{WEIGHTS}"))


def pretrained_folder(name: str) -> Path:
    """Folder of a pretrained model.

    Raises:
        CheckpointError: there is none of that name.
    """
    if name not in pretrained_names():
        known = ", ".join(pretrained_names()) or "none"
        raise CheckpointError(f"{name}: no such pretrained model. There is: {known}.")
    return pretrained_root() / name


def is_pretrained(path: Path) -> bool:
    """Whether a path is the folder of a pretrained model."""
    return path.parent == pretrained_root() and path.name in pretrained_names()


def find_model(given: Path | str) -> Path:
    """A run folder or weights file as given; the folder of a pretrained model for its name.

    What exists under that path comes first: a folder of your own may have any name.

    Raises:
        CheckpointError: neither is there.
    """
    path = Path(given)
    if path.exists():
        return path
    if str(given) not in pretrained_names():
        known = ", ".join(pretrained_names())
        models = f", or the name of a pretrained model ({known})" if known else ""
        raise CheckpointError(f"{given}: no such model. Give a run folder, a weights file{models}.")
    return pretrained_folder(str(given))


def describe(name: str) -> Description:
    """What a pretrained model says about itself."""
    path = pretrained_folder(name) / DESCRIPTION
    return read_record(path, Description, error=CheckpointError, way_out=WAY_OUT)


def file_size(name: str) -> int:
    """Bytes of the weights file of a pretrained model."""
    return (pretrained_folder(name) / WEIGHTS).stat().st_size
