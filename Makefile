# Every target sets up what it needs in .venv; only Python, make and a package index are assumed.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
DEMO := .venv-demo
DEMO_BIN := $(subst $(VENV),$(DEMO),$(BIN))
STAMP := $(VENV)/.dev
BENCH_STAMP := $(VENV)/.bench
DOCS_STAMP := $(VENV)/.docs
EXTRAS := .venv-extras
EXTRAS_BIN := $(subst $(VENV),$(EXTRAS),$(BIN))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-extras test-locale coverage lint stubs docs gallery bench verify wheel-check matrix dist release-check gpu-check clean

# In an environment of its own, with what fastmix needs to run and to draw, and nothing for developers.
demo: $(DEMO)/.demo
	$(DEMO_BIN)/python examples/demo.py

# Bytecode is kept for the processes that tests start, also where the environment says otherwise.
test: export PYTHONDONTWRITEBYTECODE =
test: lint $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal

# What needs large packages, in an environment of its own: nothing is skipped there.
test-extras: export FASTMIX_TEST_EXTRAS = 1
test-extras: $(EXTRAS)/.extras
	$(EXTRAS_BIN)/python -m pytest -m "extras and not slow" -rs $$(grep -rl "mark.extras" --include="test_*.py" tests)

# Files, commands and pages in a locale whose encoding is ASCII: every text file must say which encoding it has.
test-locale: export LC_ALL = C
test-locale: export PYTHONUTF8 = 0
test-locale: export PYTHONCOERCECLOCALE = 0
test-locale: $(STAMP)
	$(BIN)/python -m pytest -m "not slow" -n auto --dist worksteal tests/io tests/cli tests/experiments \
	  tests/test_docs.py tests/test_portability.py tests/test_site.py

UNTRACED := $(addprefix --ignore tests/,test_ceilings.py test_warming.py test_without_compiler.py) \
  --deselect tests/cli/test_outputs.py::test_file_size_limit
# Line coverage of the Python code, by room; fails below a floor. Tests of what a process takes are left out: the tracer
# is part of it. Workers are measured because their environment names the settings. Whether tests pass is what `make test`
# says: some have limits of time, which a tracer makes tight, so that failures (exit code 1) are no reason to stop here.
coverage: export COVERAGE_PROCESS_START = $(CURDIR)/pyproject.toml
coverage: export COVERAGE_FILE = $(CURDIR)/.coverage
coverage: $(STAMP)
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -m "not slow and not first" -n auto --dist worksteal tests $(UNTRACED) || test $$? = 1
	env -u COVERAGE_PROCESS_START $(BIN)/python -m coverage combine -q
	env -u COVERAGE_PROCESS_START $(BIN)/python .ci/covered.py

# Signatures for editors and type checkers, made from the methods; a test says when they are not current.
stubs: $(STAMP)
	$(BIN)/python .ci/stubs.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 src examples .ci  # text files have an encoding
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml

# Tests take minutes or moments here: workers are handed one at a time, the longest first.
verify: ONE_BY_ONE = -n auto --dist load --maxschedchunk 1
# What takes long: statistical tests, further seeds, and then examples that no run has seen before. The first run ends
# with a table of what the trials counted.
verify: export PYTHONDONTWRITEBYTECODE =
verify: $(STAMP)
	$(BIN)/python -m pytest -m slow --timeout 3600 $(ONE_BY_ONE)
	$(BIN)/python -m pytest -m "hypothesis and not slow" --hypothesis-profile verify --timeout 3600 $(ONE_BY_ONE)

docs: $(DOCS_STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Runs the scripts of examples/gallery and writes their pages and pictures into docs/gallery, and the picture of README.md.
gallery: $(DOCS_STAMP)
	$(BIN)/fastmix warm-up
	$(BIN)/python examples/overview.py
	$(BIN)/python examples/run_gallery.py

# The wheel in an empty environment, with a smoke test.
wheel-check: $(STAMP)
	$(BIN)/python .ci/wheels.py check

# The oldest and the newest supported NumPy, Numba, SciPy and Python that are on this machine.
matrix: $(STAMP)
	$(BIN)/python .ci/wheels.py matrix

# The distributions of a release, in dist.
dist: $(STAMP)
	$(BIN)/python -m build --quiet --outdir dist

# Does a tag fit the version and the release notes? make release-check TAG=v0.1.0
release-check:
	$(PYTHON) .ci/wheels.py tag $(TAG)

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
	rm -rf $(VENV) $(DEMO) $(EXTRAS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(DEMO)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DEMO)
	$(DEMO_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[plot]"
	touch $@

$(EXTRAS)/.extras: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(EXTRAS)
	$(EXTRAS_BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[torch,jax,map,count,interop,sklearn]" \
	  hypothesis pytest pytest-timeout pytest-xdist
	touch $@

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
