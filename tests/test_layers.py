"""Imports point downwards, and third-party libraries have one home each."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "segconf"

LAYERS = [
    {"errors"},
    {"conventions", "files", "registry"},
    {"arrays", "confidence", "csv_tables", "devices", "locks", "outputs"},
    {"history", "losses", "metrics"},
    {"processes"},
    {"images"},
    {"overlays", "plots"},
    {"config"},
    {"calibration.calibrators", "synthetic"},
    {"data"},
    {"models"},
    {"runs"},
    {"checkpoints.weight_files"},
    {"inference.predictors"},
    {"methods.method"},
    {"checkpoints"},
    {"methods"},
    {"calibration", "ood"},
    {"results"},
    {"review"},
    {"inference"},
    {"evaluation"},
    {"calibration.mask_fit"},
    {"calibration.calibrate", "calibration.triage", "ood.evaluation"},
    {"training"},
    {"active", "comparison", "packaging"},
    {"demo_tour", "doctor"},
]
"""From the bottom up: a module may import those below its own layer. A dotted name is a module that
does not stand in the layer of its package: the interface of the methods is below what they use, and
what is fitted with a trained model is above what is read back."""

HOMES = {
    "albumentations": {"segconf/data/transforms.py"},
    "highdicom": {"segconf/packaging"},
    "matplotlib": {"segconf/plots"},
    "monai": {"segconf/inference", "segconf/evaluation"},
    "nibabel": {"segconf/images"},
    "onnx": {"segconf/packaging"},
    "onnxruntime": {"segconf/inference"},
    "PIL": {"segconf/images", "segconf/synthetic", "segconf/overlays", "segconf/review"},
    "cv2": {"segconf/images", "segconf/overlays", "segconf/results", "segconf/review"},
    "pydicom": {"segconf/images", "segconf/packaging"},
    "pydantic": {
        "segconf/config",
        "segconf/calibration/calibrators.py",
        "segconf/checkpoints/weights.py",
        "segconf/results/run_record.py",
    },
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


def layer_of(module):
    """Layer of `package.module` if it has one of its own, else that of its package."""
    parts = module.split(".")[:2]
    for name in (".".join(parts), parts[0]):
        for level, names in enumerate(LAYERS):
            if name in names:
                return level
    raise AssertionError(f"{module} has no layer")


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_imports_point_downwards(path):
    own = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    if own == "__init__":
        return
    for module in imported_modules(path):
        if not module.startswith("segconf."):
            continue
        other = module.removeprefix("segconf.")
        if other == "__version__":
            continue
        same_room = other.split(".")[0] == own.split(".")[0]
        allowed = layer_of(other) < layer_of(own) or (
            same_room and layer_of(other) <= layer_of(own)
        )
        assert allowed, f"{own} may not import {other}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_libraries_stay_at_home(path):
    place = path.relative_to(ROOT).as_posix()
    for module in imported_modules(path):
        homes = HOMES.get(module.partition(".")[0])
        assert homes is None or any(place.startswith(home) for home in homes), f"{place}: {module}"


def test_the_library_does_not_know_the_command_line():
    for path in PACKAGE.rglob("*.py"):
        assert not any(m.startswith(("segconf_cli", "rich")) for m in imported_modules(path)), path


def test_module_names_are_unique():
    """A newcomer who looks for a file finds one, not three."""
    names = [path.stem for path in PACKAGE.rglob("*.py") if path.stem != "__init__"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_modules_are_short():
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert [str(path) for path, lines in lengths.items() if lines > 300] == []


def test_importing_segconf_imports_no_heavy_library():
    code = "import sys, segconf; print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert not {"torch", "numpy", "PIL", "pydantic"} & set(found.stdout.split())


def test_predicting_imports_no_library_of_training():
    """They would more than double the time until the first image."""
    code = (
        "import sys, segconf.inference.predict\n"
        "from segconf.config.schema import ModelConfig\n"
        "from segconf.models.unet import build_unet\n"
        "build_unet(ModelConfig(encoder='tu-test_efficientnet', encoder_weights='none'))\n"
        "print(*sorted(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    names = set(found.stdout.split())
    assert "segmentation_models_pytorch" in names
    assert not {"albumentations", "matplotlib", "monai", "scipy.ndimage", "sympy"} & names
    assert "torch._dynamo" not in names
