# make demo and make test do all the set-up on a fresh machine; the rest builds on them. `make help` lists the targets.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 4
SHELL := /bin/bash

.PHONY: help demo test lint docs links pictures plots man bench simulate long-run faults contract-rabbitmq4 chaos oracle format clean

help: ## List the targets
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

# What running needs.
$(VENV)/.run: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[embedded,metrics,python]'
	touch $@

# What developing needs (pip 25.1 reads dependency groups).
$(VENV)/.dev: $(VENV)/.run
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --group dev
	touch $@

demo: $(VENV)/.run ## Run the demo: three clusters on this machine
	$(BIN)/rainbow demo

test: $(VENV)/.dev ## Run all tests but the slow ones; ARGS goes to pytest, WORKERS=4
	./tests/ensure-servers
	RAINBOW_TEST_REQUIRE=$${RAINBOW_TEST_REQUIRE-1} $(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder -m 'not slow and not rabbitmq4' $(ARGS)

lint: $(VENV)/.dev ## Run ruff, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests
	$(BIN)/lint-imports

docs: $(VENV)/.dev ## Build the documentation site in build/docs; a broken link fails
	$(BIN)/sphinx-build -q -W --keep-going -c docs/site -b html docs build/docs

links: $(VENV)/.dev ## Try the links of the documents to elsewhere (needs the network); build/links/output.txt lists them
	$(BIN)/sphinx-build -q -c docs/site -b linkcheck docs build/links

pictures: $(VENV)/.dev ## Take the pictures of the console and of top that the documents show
	./tests/ensure-servers
	PYTHONPATH=tests/support $(BIN)/python tests/support/pictures.py docs/pictures

plots: $(VENV)/.dev ## Draw the plots of the documents from the recorded figures
	$(BIN)/python tests/benchmarks recorded docs/explanation

man: $(VENV)/.run ## Write the manual pages into build/man
	$(BIN)/python docs/man.py build/man

format: $(VENV)/.dev ## Format and fix what ruff can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# ONLY=relay runs one part; PLOT=1 draws build/bench.png.
bench: $(VENV)/.dev ## Run the benchmarks; ONLY=relay, PLOT=1
	./tests/ensure-servers
	$(BIN)/python tests/benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(PLOT),--plot)

# How it scales to 100,000 clusters, by simulation; and JOBS jobs through everything, none lost, memory flat.
simulate: $(VENV)/.dev ## Simulate up to 100,000 clusters, and 1,000,000 waiting jobs
	$(BIN)/python tests/benchmarks simulate --plot build/scale.svg
	$(BIN)/python tests/benchmarks simulate-waiting --plot build/waiting.svg

long-run: $(VENV)/.dev ## Run JOBS=1000000 jobs through everything
	$(BIN)/python tests/benchmarks long-run --jobs $(or $(JOBS),1000000) --plot build/memory.svg

faults: $(VENV)/.dev ## Run the fault tests; ARGS goes to pytest
	./tests/ensure-servers
	RAINBOW_TEST_REQUIRE=1 $(BIN)/pytest -n 2 tests/faults $(ARGS)

# Where a chroot with RabbitMQ 4 cannot be made, the tests are skipped and say why.
contract-rabbitmq4: $(VENV)/.dev ## Run the broker contract on RabbitMQ 4 (Debian 13's, in a chroot)
	$(BIN)/pytest -m rabbitmq4 tests/contract/test_brokers_rabbitmq4.py $(ARGS)

# Random faults for MINUTES; SEED repeats those of a run before. SHAPE='--recorders 3 --nodes 3 --sentinel'
chaos: $(VENV)/.dev ## Random faults for MINUTES=10; SEED repeats a run, SHAPE names the servers
	cd tests && PYTHONPATH=support ../$(BIN)/python -m faults.chaos --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(SHAPE)

# Changed messages of every kind for MINUTES; SEED repeats those of a run before.
fuzz: $(VENV)/.dev
	cd tests && PYTHONPATH=support ../$(BIN)/python -m faults.fuzz --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

# CASES=250000 SEED=1
oracle: $(VENV)/.dev ## Compare matching with a plain search; CASES=250000 SEED=1
	$(BIN)/python tests/property/oracle.py --cases $(or $(CASES),250000) --seed $(or $(SEED),1) --jobs 2

clean: ## Remove .venv, build and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
