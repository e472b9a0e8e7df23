# Every target that a person types. `make help` lists them; CI runs the same ones.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-13s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.ready ## Make .venv with the pinned development requirements
	@echo "$(VENV) is ready: . $(VENV)/bin/activate"

$(VENV)/.ready: requirements-dev.txt pyproject.toml
	@echo "making $(VENV) with $$($(PYTHON) --version): torch and what else requirements-dev.txt pins; minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --use-pep517 -r requirements-dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: demo
demo: ## From nothing to a preempted, requeued, finished run on a real Slurm (installs what is missing)
	@tests/demo/demo.sh

.PHONY: test
test: $(VENV)/.ready ## Unit tests, and the lab tests on a real Slurm of their own (under CI a missing Slurm fails)
	$(BIN)/python -m pytest

.PHONY: check
check: $(VENV)/.ready ## Lint, format, types, and the oldest Python that the code would run on
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	@$(BIN)/vermin --no-tips --violations --target=3.10- slurmkit trainer

# Of Slurm, for what runs in containers: 22.05, 24.11 or 26.05; test-docker also takes all.
SLURM ?= 22.05

.PHONY: cluster-up
cluster-up: $(VENV)/.ready ## A cluster of containers, of another Slurm: make cluster-up SLURM=24.11
	@docker/cluster.sh up "$(SLURM)"

.PHONY: cluster-shell
cluster-shell: ## A shell on its login host, as user alice
	@docker/cluster.sh shell "$(SLURM)"

.PHONY: cluster-down
cluster-down: ## Remove its containers, network and volumes
	@docker/cluster.sh down "$(SLURM)"

.PHONY: test-docker
test-docker: $(VENV)/.ready ## The lab tests and the tests on real hosts: SLURM=22.05|24.11|26.05|all, ONLY=core
	@docker/test.sh $(if $(ONLY),--only $(ONLY)) $(SLURM)

.PHONY: bench
bench: $(VENV)/.ready ## Measure what docs/benchmarks.md claims, and write it anew
	$(BIN)/python -m tests.bench

.PHONY: clean
clean: ## Remove what was built and cached; runs/ and data/ stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
