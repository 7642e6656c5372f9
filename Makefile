# Every target first makes the environment if it is missing; nothing has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TRAIN_STAMP := $(VENV)/.installed-train
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
INTERPRETER := .venv-interpreter
# What an hour of the GPU costs, for the page on our own runs: assumed.
PRICE := 2.5
# One more than there are cores: some tests wait for other processes.
WORKERS ?= $(shell expr $$(nproc) + 1)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all proofs fuzz interpret check docs bench figures figures-of-ours figures-of-paper clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Enough to train: three quarters of what the tests and checks need.
$(TRAIN_STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[train]'
	@touch $@

$(STAMP): $(TRAIN_STAMP)
	$(INSTALL) '.[dev,train]'
	@touch $@

setup: $(STAMP)  ## create .venv from the pinned constraints.txt

demo: $(TRAIN_STAMP)  ## the whole loop, small: corpus, sweep, laws, page (a few minutes on two cores)
	$(BIN)/routelaw demo --out out/demo

test: $(STAMP)  ## the test suite (CPU; about seven minutes on two cores)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not long'

test-all: test proofs fuzz interpret  ## the suite, the long proofs (kills, faults, clusters, browser), fuzzing, and the GPU's kernels interpreted

proofs: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m long

fuzz: $(STAMP)  ## 10,000 mutations of tables, specs, corpora and checkpoints
	$(BIN)/python -m verification.fuzz

$(INTERPRETER)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(INTERPRETER)
	sed '/^numpy==/d' constraints.txt > $(INTERPRETER)/constraints.txt
	$(INTERPRETER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(INTERPRETER)/constraints.txt \
		--editable '.[train]' pytest pytest-xdist hypothesis pot 'numpy<2.4' triton==3.6.0
	@touch $@

interpret: $(INTERPRETER)/.installed  ## the GPU's kernels on a CPU, by Triton's interpreter (its environment has an older numpy)
	$(INTERPRETER)/bin/python -m pytest -n $(WORKERS) tests/kernels

check: $(STAMP)  ## format, lint, types, import direction, spelling, and the pages made from code and results
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python benchmarks/results_md.py --check
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m pytest -q tests/docs/test_links.py

docs: $(STAMP)  ## write docs/reference from the code, and check every link
	$(BIN)/python docs/generate.py
	$(BIN)/python -m pytest -q tests/docs/test_links.py

bench: $(STAMP)  ## benchmarks: ratios against named baselines
	$(BIN)/python -m benchmarks.fit --record
	$(BIN)/python -m benchmarks.corpus --record

figures: $(STAMP)  ## redraw our own runs into out/miniature/report, and the paper (DATA=its released losses, or fetched) into out/reproduce
	$(MAKE) --no-print-directory -j 2 figures-of-ours figures-of-paper

figures-of-ours:
	$(BIN)/python -m experiments.miniature.analysis.report --out out/miniature/report --price $(PRICE)

figures-of-paper:
	@if [ -n "$(DATA)" ] || $(BIN)/routelaw data where --json | grep -q '"present": true'; then \
	    set -x; $(BIN)/routelaw reproduce $(if $(DATA),--data "$(DATA)") --out out/reproduce --force; \
	else \
	    echo "The paper's own figures are left out: routelaw data fetch gets its released losses, or say DATA=FILE."; \
	fi

clean:  ## remove the environment and everything made
	rm -rf $(VENV) $(INTERPRETER) out build dist *.egg-info
