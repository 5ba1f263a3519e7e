# Set-up happens by itself, once: `make demo` and `make test` work on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One process per processor. The tests of a file share what it has trained, so files stay whole; in
# their own order, because the long ones come first.
PARALLEL := -n logical --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-slow check notebooks clean

demo: $(VENV)/installed
	$(BIN)/segconf demo --out demo

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest $(PARALLEL)

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m slow

check: $(VENV)/installed-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python tests/check_wheel.py build/wheel

# Execute the notebooks with their own settings and store their outputs: some ten minutes.
notebooks: $(VENV)/installed-dev
	$(BIN)/python tests/execute_notebooks.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The stamps make a second run skip the installation until the dependencies change.
$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[onnx]"
	touch $@

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@ $(VENV)/installed
