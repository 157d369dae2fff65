# `make demo` or `make test` is all a fresh clone needs: each builds the virtual environment and installs the packages.
.PHONY: help setup demo test test-busy test-slow test-hostile test-gpu check format bench clean
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Two processes with a thread each: faster on two cores than one process with two. Files stay whole, for their fixtures.
SIDE_BY_SIDE := -n 2 --dist loadfile
# `make test BROWSER=chromium` drives that browser: chromium-headless-shell, chromium, google-chrome, or a full path.
# Only from the command line: many desktops have a variable of this name in their environment.
ifeq ($(origin BROWSER),command line)
export FOCUSMEM_BROWSER := $(BROWSER)
endif

help:           ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh
	@touch $(READY)

setup: $(READY) ## make the virtual environment

demo: $(READY)  ## watch memory at work; for example: make demo DEMO="--seed 3"
	$(BIN)/focusmem demo $(DEMO)

test: $(READY)  ## the tests CI runs (CPU only); BROWSER=chromium drives that browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE)

test-busy: $(READY) ## the same tests while other processes keep every processor busy
	OMP_NUM_THREADS=1 $(BIN)/python scripts/busy.py $(BIN)/python -m pytest $(SIDE_BY_SIDE)

test-slow: $(READY) ## all tests that need no GPU; one fetches a tokenizer with npm, where there is npm
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not gpu and not network"

test-hostile: $(READY) ## only hostile pages and files, the slow ones too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "hostile and not gpu and not network"

test-gpu:       ## the tests that need a GPU, with the machine's own python
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu -W default --ignore=tests/browser --ignore=tests/evaluation/test_faults.py

check: $(READY) ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## time the readout on this machine's CPU
	$(BIN)/focusmem bench readout --device cpu --width 384

clean:          ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
