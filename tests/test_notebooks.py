"""Every notebook runs from top to bottom, defines nothing, and is committed without output."""

import ast
import json
from pathlib import Path

import matplotlib as mpl
import pytest

TINY = {"images": 12, "epochs": 1}
"""In place of what the cell tagged `parameters` sets."""
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def code_cells(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    names = {}
    for cell in code_cells(path):
        exec(compile("".join(cell["source"]), path.name, "exec"), names)  # noqa: S102
        if "parameters" in cell["metadata"].get("tags", []):
            assert set(TINY) <= set(names)
            names.update(TINY)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_a_guided_tour(path):
    for cell in code_cells(path):
        assert cell["outputs"] == []
        tree = ast.parse("".join(cell["source"]))
        assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree))
