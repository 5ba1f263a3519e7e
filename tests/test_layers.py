"""Imports point downwards, and third-party libraries have one home each."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "segconf"

LAYERS = [
    {"errors"},
    {"devices", "files"},
    {"tensors"},
    {"confidence", "history", "losses", "metrics", "strangers"},
    {"aleatoric"},
    {"images"},
    {"config"},
    {"data", "models"},
    {"checkpoints", "snapshots"},
    {"runs"},
    {"overlays", "plots"},
    {"training", "review"},
    {"inference"},
    {"evaluation"},
    {"active", "benchmark"},
    {"demo", "doctor"},
]
"""From the bottom up: a module may import those below its own layer."""

HOMES = {
    "albumentations": {"segconf/data/transforms.py"},
    "matplotlib": {"segconf/plots"},
    "monai": {"segconf/inference", "segconf/evaluation"},
    "nibabel": {"segconf/images"},
    "PIL": {"segconf/images", "segconf/data/demo", "segconf/overlays", "segconf/review"},
    "pydantic": {"segconf/config", "segconf/checkpoints.py"},
    "segmentation_models_pytorch": {"segconf/models"},
    "timm": {"segconf/models"},
    "typer": {"cli/segconf_cli"},
    "yaml": {"segconf/config"},
}

SOURCES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "cli").rglob("*.py")])


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            if module == "segconf":
                yield from (f"segconf.{alias.name}" for alias in node.names)
            else:
                yield module


def layer_of(name):
    return next(level for level, names in enumerate(LAYERS) if name in names)


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_imports_point_downwards(path):
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] != "segconf" or len(parts) == 1 or parts[1] in {own, "__version__"}:
            continue
        assert layer_of(parts[1]) < layer_of(own), f"{own} may not import {parts[1]}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_libraries_stay_at_home(path):
    place = path.relative_to(ROOT).as_posix()
    for module in imported_modules(path):
        homes = HOMES.get(module.partition(".")[0])
        assert homes is None or any(place.startswith(home) for home in homes), f"{place}: {module}"


def test_the_library_does_not_know_the_command_line():
    for path in PACKAGE.rglob("*.py"):
        assert not any(m.startswith(("segconf_cli", "rich")) for m in imported_modules(path)), path
