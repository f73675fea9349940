# Everything runs in an environment of its own, .venv, which needs nothing but Python 3.11 or newer.

.PHONY: help demo test lint bench docs
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/stamp-run  ## install, measure a small training script on one and two ranks, write a report
	$(BIN)/paceline run --fresh --name demo --nproc 1,2 --rounds 3 examples/train.py
	@echo; $(BIN)/paceline report demo

test: .venv/stamp-dev  ## run all tests
	$(BIN)/python -m pytest

lint: .venv/stamp-dev  ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: .venv/stamp-dev  ## measure Paceline itself: what it claims of its cost and gain; half an hour
	@missed=; for name in overhead placement harness virtual virtual_opinfo; do echo "== benchmarks/$$name.py"; \
		$(BIN)/python benchmarks/$$name.py || missed="$$missed $$name"; done; \
	if [ -n "$$missed" ]; then echo "claims that do not hold here:$$missed" >&2; exit 1; fi

docs: .venv/stamp-dev  ## check that docs/ and the commands agree
	$(BIN)/python -m pytest -q tests/unit/test_docs.py

# The stamps say which extras are installed; they are older than pyproject.toml when it changed.
.venv/stamp-run: pyproject.toml
	@$(call make_environment,.[report])

.venv/stamp-dev: pyproject.toml
	@$(call make_environment,.[test$(comma)report$(comma)lint])
	@touch .venv/stamp-run

comma := ,

define make_environment
	if [ -z "$(PYTHON)" ]; then \
		echo "Paceline needs Python 3.11 or newer, found $$(python3 --version 2>&1 || echo none)." \
			"Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; fi; \
	[ -x $(BIN)/pip ] || $(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "$(PYTHON) cannot make a virtual environment; on Debian: apt install python3-venv" >&2; exit 1; }; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '$(1)' && touch $@
endef
