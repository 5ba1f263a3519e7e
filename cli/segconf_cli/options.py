"""Arguments and options that several commands share, so that they read the same everywhere."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from segconf.registry import METHODS

MethodName = StrEnum("MethodName", {name: name for name in METHODS.names()})  # type: ignore[misc]
"""Every registered method, those of other packages included."""


class Split(StrEnum):
    """Images on which a run is measured."""

    TEST = "test"
    VAL = "val"


class Style(StrEnum):
    """How an overlay looks."""

    CONTOUR = "contour"
    HEATMAP = "heatmap"
    SIDE_BY_SIDE = "side-by-side"


class MapFormat(StrEnum):
    """Format of masks and maps."""

    PNG = "png"
    NIFTI = "nifti"


class Saved(StrEnum):
    """What is written only when it is asked for."""

    PROBABILITIES = "probabilities"


class Strategy(StrEnum):
    """What images are ranked by for annotation."""

    CONFIDENCE = "confidence"
    BOUNDARY_CONFIDENCE = "boundary-confidence"
    CONSISTENCY = "consistency"
    ENTROPY = "entropy"
    EXPECTED_DICE = "expected-dice"
    CORESET = "coreset"
    RANDOM = "random"


DatasetName = Annotated[
    str,
    typer.Argument(
        help="isic, demo, cifar10, cifar100, a folder with masks or labels, or a table.",
        show_default=False,
    ),
]
RunPath = Annotated[Path, typer.Argument(help="Run folder, such as runs/NAME.")]
MapsPath = Annotated[Path, typer.Argument(help="Folder that `segconf predict` wrote.")]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data set.",
        show_default="SEGCONF_DATA",
        rich_help_panel="Data and results",
    ),
]
RunDataFolder = Annotated[
    Path | None,
    typer.Option(help="Folder of the data set, if it has moved.", show_default="that of the run"),
]
ReportFolder = Annotated[
    Path | None, typer.Option(help="Folder of the report.", show_default="in the run")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="Experiment file, such as configs/isic2017.yaml.",
        show_default="the defaults",
        rich_help_panel="Training",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting, such as training.epochs=40.",
        rich_help_panel="Training",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
