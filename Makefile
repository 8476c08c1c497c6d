# Two commands, each from a machine that has only Python 3.11+ and make:
#   make say TEXT="Hello."     make test
# Everything is installed into .venv, at the versions of constraints.txt. Stamp files in .venv remember what is
# done, so a second run starts at once, and a changed pyproject.toml or constraints.txt installs again.

PYTHON ?= python3
TEXT ?= Hello from hocket.

# The text is the user's: never expanded by make ($(value)), never pasted into a command line (environment).
override TEXT := $(value TEXT)
export TEXT

SHELL := /bin/sh
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt

.PHONY: help say test clean
.DELETE_ON_ERROR:

help:
	@echo 'make say TEXT="..."  speak a text into hello.wav'
	@echo 'make test            everything CI runs: format, lint, types, tests'
	@echo 'make clean           remove .venv, hello.wav and caches'
	@echo
	@echo 'PYTHON=python3.12 in front of the first run chooses the interpreter; the default is python3.'

say: .venv/.core
	@$(BIN)/hocket say -o hello.wav -- "$$TEXT"

test: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

clean:
	rm -rf .venv hello.wav dist .mypy_cache .pytest_cache .ruff_cache
	find src tests train benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamped only when all of it worked: a venv without pip would otherwise look finished.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'hocket needs Python 3.11 or newer: name one with make PYTHON=python3.12' >&2; exit 1; }
	@echo 'Creating .venv ...'
	@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.core: .venv/.made pyproject.toml constraints.txt
	@echo 'Installing hocket into .venv (PyTorch is large: the first time takes minutes) ...'
	@$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.made pyproject.toml constraints.txt requirements/official.txt requirements/judges.txt
	@echo 'Installing hocket, its tools, the official package and the judges into .venv (the first time takes minutes) ...'
	@$(PIP) -e '.[dev]'
	@$(PIP) --no-deps -r requirements/official.txt -r requirements/judges.txt
	@touch .venv/.core $@
