"""Execute notebooks with their own settings and store their outputs in them: `make notebooks`.

Run: python tests/execute_notebooks.py [NOTEBOOK ...]
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
FIGURES = "figure.dpi: 72\n"
"""The `matplotlibrc` of the scratch folder: small pictures."""
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # one order of adding: the same numbers again on the same machine
    "NO_ALBUMENTATIONS_UPDATE": "1",
    "PYTHONWARNINGS": "ignore:IProgress not found",  # of tqdm, which shows nothing here
}


def execute(path):
    """Run all cells in a folder of their own; only cells and outputs of the file change."""
    notebook = nbformat.read(path, as_version=4)
    metadata = notebook.metadata.copy()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "matplotlibrc").write_text(FIGURES, encoding="utf-8")
        place = {"metadata": {"path": scratch}}
        NotebookClient(
            notebook,
            timeout=None,
            record_timing=False,
            coalesce_streams=True,
            resources=place,
            extra_arguments=["--log-level=ERROR"],
        ).execute()
    notebook.metadata = metadata  # the kernel adds the version of Python
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if "image/jpeg" in output.get("data", {}):
            del output.data["image/png"]  # the same photograph, three times as large
    nbformat.write(notebook, path)


def main(given):
    os.environ.update(ENVIRONMENT)
    for path in [Path(one) for one in given] or sorted(NOTEBOOKS.glob("*.ipynb")):
        execute(path)
        sys.stdout.write(f"{path.name}: {path.stat().st_size / 1000:.0f} kB\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
