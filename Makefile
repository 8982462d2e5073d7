# `make demo` and `make test` set up what they need when it is missing; everything lives in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export HF_HUB_OFFLINE := 1
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help setup demo demo-rm test test-all test-gpu lint style types pyright check bench clean
.DEFAULT_GOAL := help

help:  ## List the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 10

setup: $(VENV)/.test  ## Create .venv with everything.

demo: $(VENV)/.scoring  ## Score rollouts that the repository makes itself, and show the report.
	PATH="$(CURDIR)/$(BIN):$$PATH" bash recipes/demo/run.sh demo

demo-rm: $(VENV)/.serving  ## Score rollouts with a reward model on two vLLM servers behind the router, and show the report.
	PATH="$(CURDIR)/$(BIN):$$PATH" bash recipes/disrm/demo.sh demo-rm

test: $(VENV)/.test  ## Run all tests but the slowest recipes.
	$(BIN)/python -m pytest -q

test-all: $(VENV)/.test  ## Run all tests.
	$(BIN)/python -m pytest -q --slow

test-gpu: $(VENV)/.test  ## Run the tests that need a CUDA device.
	$(BIN)/python -m pytest -q -m gpu

lint: style types pyright  ## Check style and types.

style: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.test
	$(BIN)/mypy

pyright: $(VENV)/.test
	$(BIN)/pyright

check: lint test  ## Check style and types, then run all tests.

bench: $(VENV)/.test  ## Measure speed and memory; benchmarks/README.md has the figures.
	-$(BIN)/python benchmarks/rule_loop.py
	-$(BIN)/python benchmarks/file_scoring.py
	-$(BIN)/python benchmarks/isolation.py
	-$(BIN)/python benchmarks/rm_loop.py
	-$(BIN)/python benchmarks/weight_sync.py
	-$(BIN)/python benchmarks/rubric_overhead.py
	-$(BIN)/python benchmarks/judge_session.py
	-$(BIN)/python benchmarks/rinker_sampling.py
	-$(BIN)/python benchmarks/rinker_http.py
	-$(BIN)/python benchmarks/rinker_streaming.py
	$(BIN)/python benchmarks/router.py

clean:  ## Remove .venv and what tests and the demo leave.
	rm -rf $(VENV) demo demo-rm .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "reward_loop needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)

# torch comes first and alone: machines without a GPU then keep the CPU build where one is offered.
$(VENV)/.scoring: $(VENV)/bin/python requirements/scoring.txt setup.cfg pyproject.toml
	@echo "Installing what scoring needs into $(VENV) (about a minute) …"
	$(PIP) torch==2.13.0
	$(PIP) -r requirements/scoring.txt
	$(PIP) --no-deps --editable .
	@touch $@

$(VENV)/.serving: $(VENV)/.scoring requirements/serving.txt
	@echo "Installing vLLM into $(VENV) (some minutes) …"
	if command -v nvidia-smi > /dev/null; then $(PIP) 'vllm>=0.32,<0.34'; else $(PIP) --no-deps -r requirements/serving.txt; fi
	@touch $@

$(VENV)/.test: $(VENV)/.serving requirements/test.txt
	@echo "Installing what tests need into $(VENV) …"
	$(PIP) -r requirements/test.txt
	@touch $@
