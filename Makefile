# Every target sets up what it needs in .venv; only Python, make and a package index are assumed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.dev
BENCH_STAMP := $(VENV)/.bench
DOCS_STAMP := $(VENV)/.docs
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint docs gallery bench verify wheel-check matrix gpu-check clean

demo: $(STAMP)
	$(BIN)/python examples/demo.py

# Bytecode is kept for the processes that tests start, also where the environment says otherwise.
test: export PYTHONDONTWRITEBYTECODE =
test: lint $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What takes long: statistical tests, further seeds, and then examples that no run has seen before. The first run ends
# with a table of what the trials counted.
verify: export PYTHONDONTWRITEBYTECODE =
verify: $(STAMP)
	$(BIN)/python -m pytest -m slow --timeout 3600 -n auto --dist worksteal
	$(BIN)/python -m pytest -m "hypothesis and not slow" --hypothesis-profile verify --timeout 3600 -n auto --dist worksteal

docs: $(DOCS_STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Runs the scripts of examples/gallery and writes their pages and pictures into docs/gallery.
gallery: $(DOCS_STAMP)
	$(BIN)/fastmix warm-up
	$(BIN)/python examples/run_gallery.py

# The wheel in an empty environment, with a smoke test.
wheel-check: $(STAMP)
	$(BIN)/python .ci/wheels.py check

# The oldest and the newest supported NumPy, Numba, SciPy and Python that are on this machine.
matrix: $(STAMP)
	$(BIN)/python .ci/wheels.py matrix

bench: $(BENCH_STAMP)
	$(BIN)/python benchmarks/exact.py
	$(BIN)/python benchmarks/projection.py --paper
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/several_states.py
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/loopy_bp.py
	$(BIN)/python benchmarks/divergences.py
	$(BIN)/python benchmarks/accuracy.py --quick

# On a machine with an NVIDIA GPU: all tests on the device, then the benchmark, and one table.
gpu-check: $(STAMP)
	$(BIN)/python benchmarks/gpu_check.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e ".[dev]"
	touch $@

$(DOCS_STAMP): $(STAMP)
	$(INSTALL) -e ".[docs]"
	touch $@

$(BENCH_STAMP): $(STAMP)
	$(INSTALL) -e ".[bench]"
	touch $@
