# make demo and make test do all the set-up on a fresh machine; the rest builds on them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 4
SHELL := /bin/bash

.PHONY: demo test lint bench simulate long-run faults chaos oracle format clean

# What running needs.
$(VENV)/.run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[embedded,metrics]'
	touch $@

# What developing needs (pip 25.1 reads dependency groups).
$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --group dev
	touch $@

demo: $(VENV)/.run
	$(BIN)/rainbow demo

test: $(VENV)/.dev
	./tests/ensure-servers
	RAINBOW_TEST_REQUIRE=$${RAINBOW_TEST_REQUIRE-1} $(BIN)/pytest -n $(WORKERS) -m 'not slow' $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# ONLY=relay runs one part; PLOT=1 draws build/bench.png.
bench: $(VENV)/.dev
	./tests/ensure-servers
	$(BIN)/python tests/benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(PLOT),--plot)

# How it scales to 100,000 clusters, by simulation; and JOBS jobs through everything, none lost, memory flat.
simulate: $(VENV)/.dev
	$(BIN)/python tests/benchmarks simulate --plot build/scale.svg

long-run: $(VENV)/.dev
	$(BIN)/python tests/benchmarks long-run --jobs $(or $(JOBS),1000000) --plot build/memory.svg

faults: $(VENV)/.dev
	./tests/ensure-servers
	RAINBOW_TEST_REQUIRE=1 $(BIN)/pytest -n 2 tests/faults $(ARGS)

# Random faults for MINUTES; SEED repeats those of a run before.
chaos: $(VENV)/.dev
	cd tests && ../$(BIN)/python -m faults.chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

# CASES=250000 SEED=1
oracle: $(VENV)/.dev
	$(BIN)/python tests/property/oracle.py --cases $(or $(CASES),250000) --seed $(or $(SEED),1) --jobs 2

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
