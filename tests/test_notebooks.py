"""Every notebook defines nothing, and shows what it shows when it runs from top to bottom."""

import ast
import copy
import json
import re
import shlex
from pathlib import Path

import matplotlib as mpl
import pytest
import typer

from segconf_cli.main import app
from tests.notebook_outputs import (
    PARAMETERS,
    code_cells,
    difference,
    has_tag,
    masked,
    run_cell,
    stored_pictures,
    stored_text,
)

TINY = {"images": 12, "epochs": 1}
"""In place of what the cell tagged `parameters` sets."""
NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
MOST_BYTES = 400_000
MACHINE_PATH = re.compile(r"(?<![\w.)])/\w+/|\b[A-Z]:\\|~/|site-packages")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read_cells(path):
    return code_cells(json.loads(path.read_text(encoding="utf-8")))


@each_notebook
def test_stored_outputs_are_those_of_a_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    names = {}
    for number, cell in enumerate(read_cells(path), start=1):
        text, pictures = run_cell("".join(cell["source"]), names)
        problem = difference(cell, text)
        assert problem is None, f"cell {number}: run `make notebooks`\n{problem}"
        assert stored_pictures(cell) == pictures, f"cell {number}: run `make notebooks`"
        if has_tag(cell, PARAMETERS):
            assert set(TINY) <= set(names)
            names.update(TINY)


@each_notebook
def test_notebook_is_a_guided_tour(path):
    for cell in read_cells(path):
        tree = ast.parse("".join(cell["source"]))
        assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree))


@each_notebook
def test_commands_in_the_text_parse(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    commands = re.findall(r"`+\n?(segconf [a-z][^`]* [^`]*)`", text)
    assert commands
    for line in commands:
        name, *arguments = shlex.split(line)[1:]
        typer.main.get_command(app).commands[name].make_context(name, arguments)


@each_notebook
def test_notebook_can_be_read_where_it_is_hosted(path):
    cells = read_cells(path)
    assert path.stat().st_size <= MOST_BYTES
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert any(stored_text(cell) for cell in cells)
    assert any(stored_pictures(cell) for cell in cells)
    for output in (output for cell in cells for output in cell["outputs"]):
        assert output["output_type"] in {"stream", "execute_result", "display_data"}
        assert output.get("name", "stdout") == "stdout"  # no warnings, no progress
        assert not MACHINE_PATH.search("".join(output.get("text", "")))
    assert all(set(cell["metadata"]) <= {"tags"} for cell in cells)


def test_machine_paths_are_recognized():
    for text in ("in /home/someone/maps", "'/tmp/a'", r"C:\Users", "~/runs", "/data/x"):
        assert MACHINE_PATH.search(text)
    for text in ("labeling/maps/review.html", "images/second", "1/2", "ms/image"):
        assert not MACHINE_PATH.search(text)


CELL = {
    "metadata": {},
    "outputs": [
        {"output_type": "stream", "name": "stdout", "text": ["ISIC_0000012  0.913 \n", "Dice -1\n"]}
    ],
}


def test_changed_word_or_number_is_found():
    text = "ISIC_0000012  0.913 \nDice -1\n"
    assert difference(CELL, text) is None
    assert "Dice -2" in difference(CELL, text.replace("-1", "-2"))
    assert "Dize" in difference(CELL, text.replace("Dice", "Dize"))


def test_numbers_of_a_cell_that_varies_may_change_but_not_its_words_columns_or_lines():
    cell = copy.deepcopy(CELL) | {"metadata": {"tags": ["varies"]}}
    assert difference(cell, "ISIC_2000001 10.2 \nDice   nan\n") is None
    assert difference(cell, "ISIC_2000001 10.2 \nIoU 1\n") is not None
    assert difference(cell, "ISIC_2000001 10.2 7 \nDice 1\n") is not None
    assert difference(cell, "ISIC_2000001 10.2 \n") is not None
    assert masked("T = 4: x10^-3, 95% of 1e-05, mAP50b, +2.0 to -0.1") == (
        "T = #: x10^#, #% of #, mAP50b, # to #"
    )


def test_cell_shows_what_a_kernel_would():
    names = {}
    assert run_cell("a = 1\nprint('one', a)\n{'a': a}", names) == ("one 1\n{'a': 1}", 0)
    assert run_cell("import matplotlib.pyplot as plt\nplt.figure();", names)[1] == 1
    assert run_cell("a", names) == ("1", 0)
    source = "from PIL import Image\nImage.new('L', (3, 2))"
    assert run_cell(source, names) == ("<PIL.Image.Image image mode=L size=3x2>", 1)
