# Paths are relative throughout, so that the checkout may lie anywhere, under a name with spaces too.

PYTHON ?= python3
BIN    := .venv/bin
# The last thing that making .venv does. A venv without it was interrupted, and is made again from the start.
READY  := .venv/.ready
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-input -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-long smoke chaos stateful histories measure long lint types check dist clean venv

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## run a task whose write loses its reply, on a real server; KEEP=1 leaves everything running
	@$(BIN)/settled local --demo $(if $(filter 1,$(KEEP)),--keep)

test: $(READY) ## run the tests, on SQLite and on a PostgreSQL of their own; without those that cost much
	@$(BIN)/python -m pytest -q -n 4 --dist worksteal -m "not long"

test-long: $(READY) ## run the tests that cost much: demos, long tasks, large models, most crash points
	@$(BIN)/python -m pytest -q -n 4 --dist worksteal -m long

smoke: $(READY) ## run a task on a real small model, if its packages are installed; SMOKE_PYTHON=another Python that has them
	@$(if $(SMOKE_PYTHON),SMOKE_PYTHON="$(SMOKE_PYTHON)") $(BIN)/python -m pytest -q -rs tests/smoke

chaos: $(READY) ## a storm over everything; SEED=, OPERATIONS=2000, STORE=sqlite|postgres, DEDUPE=0; NAIVE=1: plain Temporal
	@$(BIN)/python -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(OPERATIONS),--operations $(OPERATIONS)) \
	  $(if $(STORE),--store $(STORE)) $(if $(filter 0,$(DEDUPE)),--no-dedupe) $(if $(filter 1,$(NAIVE)),--naive)

stateful: $(READY) ## let anything happen to a real ledger, for minutes; SEED= repeats a run, EXAMPLES= says how long
	@seed=$${SEED:-$$(date +%s)}; echo "seed $$seed"; \
	  STATEFUL_EXAMPLES=$${EXAMPLES:-1000} $(BIN)/python -m pytest -q tests/protocol/test_stateful.py --hypothesis-seed=$$seed

histories: $(READY) ## record anew the histories that the replay tests replay (after a deliberate change only)
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT INT TERM && \
	  RECORD_HISTORIES="$$folder" $(BIN)/python -m pytest -q tests/end_to_end && \
	  mv -f "$$folder"/*.json tests/replay/histories/

measure: $(READY) ## measure what a turn costs in history, at 10, 100 and 200 turns
	@said=$$($(BIN)/python -m tests.measure_history) && printf '%s\n' "$$said" | grep '^|'  # without the server's banner

long: $(READY) ## run a task of 1,000 turns with outputs of 20 kB, and print what it cost; TURNS= says how many
	@$(BIN)/python -m tests.measure_long $(TURNS)

lint: $(READY) ## check style and format
	@$(BIN)/python -m ruff check
	@$(BIN)/python -m ruff format --check

types: $(READY) ## check types, strictly, in the product and the tests
	@$(BIN)/python -m mypy

check: lint types test-long test ## all of these

dist: $(READY) ## build the sdist, and the wheel from the sdist, into dist/
	@rm -rf dist build src/settled.egg-info
	@$(BIN)/python -m build --no-isolation

venv: $(READY) ## make .venv, which every target that needs it does by itself

clean: ## remove everything that make made, .venv too
	@rm -rf .venv build dist src/settled.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "settled needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>/dev/null || echo missing). Name another: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "settled needs Python's venv module, which '$(PYTHON)' lacks; on Debian and Ubuntu it is the package python3-venv." >&2; exit 1; }
	@echo "settled: making .venv (once; a minute or so)"
	@rm -rf .venv
	@$(PYTHON) -m venv .venv
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $(READY)
