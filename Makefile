# `make` lists the targets. Everything runs from .venv, which the targets create themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := demo-run

# Data sets that lie beside the repository, unless CFUICA_DATA names others.
ifneq ($(wildcard ../shared/data),)
test demo bench: export CFUICA_DATA ?= $(abspath ../shared/data)
endif

.DEFAULT_GOAL := help
.PHONY: help $(VENV) demo test check format wheel bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z.$$()VEN]+:.*## / \
		{ sub(/\$$\(VENV\)/, "$(VENV)", $$1); printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

$(VENV): $(STAMP)  ## create or refresh the environment

# The stamp is touched last: an interrupted installation is taken up again.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
		echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer, or name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "cfuica needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing cfuica into $(VENV): a minute or two, longer on a slow line (torch is a large download)."
	@start=$$(date +%s) \
		&& $(PYTHON) -m venv $(VENV) \
		&& $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]" \
		&& touch $@ \
		&& echo "Installed in $$(( $$(date +%s) - start )) s."

demo: $(STAMP)  ## train, evaluate and recommend on the embedded data (about a minute)
	@$(BIN)/cfuica demo --out $(DEMO)

# numba's cache of a kernel does not notice a change in another kernel's file.
test: check  ## lint, types, layers and tests
	@find src -name '*.nb[ic]' ! -newer "$$(ls -t src/cfuica/ops/*.py | head -n 1)" -delete
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

check: $(STAMP)  ## lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/lint-imports

format: $(STAMP)  ## sort imports, apply safe fixes, format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(STAMP)  ## build a wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist .

bench: $(STAMP)  ## time one minibatch, part by part
	$(BIN)/cfuica bench step

clean:  ## remove what was built or written; .venv stays
	rm -rf dist build $(DEMO) $(DEMO)-ranking .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
