"""What a notebook shows in text: as it is stored, and as its cells say it when they run now."""

import ast
import contextlib
import io
import re

import matplotlib.pyplot as plt
from IPython.lib.pretty import pretty

PARAMETERS, VARIES = "parameters", "varies"
"""Tags of cells: settings that a test replaces, and outputs whose numbers depend on them."""
NUMBER = re.compile(r"[-+]?\b(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|nan|inf)\b|(?<=_)\d+\b")
SPACES = re.compile(r"[ ]+")


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def has_tag(cell, tag):
    return tag in cell["metadata"].get("tags", [])


def stored_text(cell):
    """Printed lines and the value of the last expression, as the notebook holds them."""
    parts = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            parts += output["text"]
        elif output["output_type"] == "execute_result":
            parts += output["data"]["text/plain"]
    return "".join(parts)


def stored_pictures(cell):
    """Number of pictures that a cell shows."""
    kinds = [set(output.get("data", {})) for output in cell["outputs"]]
    return sum(len(kind & {"image/png", "image/jpeg"}) for kind in kinds)


def run_cell(source, names):
    """Run a cell in this process; what a kernel would show in text, and the number of pictures."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    statements = ast.Module(tree.body[:-1] if last else tree.body, [])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(statements, "<cell>", "exec"), names)  # noqa: S102
        value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names) if last else None  # noqa: S307
    pictures = len(plt.get_fignums())
    plt.close("all")
    if hasattr(value, "_repr_png_"):
        pictures += value._repr_png_() is not None
    return printed.getvalue() + ("" if value is None else pretty(value)), pictures


def masked(text):
    """Words and columns alone: every number is #, also those of ids, and spaces count as one."""
    return SPACES.sub(" ", NUMBER.sub("#", text))


def difference(cell, text):
    """What the stored text of a cell and the text it shows now disagree in; None if they agree."""
    stored = stored_text(cell)
    if has_tag(cell, VARIES):
        stored, text = masked(stored), masked(text)
    return None if stored == text else f"stored:\n{stored}\nnow:\n{text}"
