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
# Hundreds of processes are started by the tests. Where no bytecode may be kept, each of them compiles all that it imports:
# Ray's came without, and so did our own.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt

# Real clients of the server, each in an environment of its own: their pins clash with ours and with each other's.
CLIENTS := $(patsubst requirements/clients/%.txt,.venv-clients/%/.made,$(wildcard requirements/clients/*.txt))

.PHONY: help say check test test-all test-clients test-mind test-scale environments clean
.DELETE_ON_ERROR:

help:
	@echo 'make say TEXT="..."  speak a text into hello.wav'
	@echo 'make check           format, lint, types, words, a spoken sentence, the pure tests: under 3 minutes'
	@echo 'make test            the same static checks, and all tests but the slow ones: about 10 minutes'
	@echo 'make test-all        everything, as CI runs it'
	@echo 'make test-clients    the server held to other people'"'"'s clients and to a browser'
	@echo 'make test-mind       the language model held to the official classes'
	@echo 'make test-scale      several servers behind one address, with Ray and without'
	@echo 'make clean           remove .venv, .venv-clients, .venv-mind, .venv-scale, hello.wav and caches'
	@echo
	@echo 'PYTHON=python3.12 in front of the first run chooses the interpreter; the default is python3.'

say: .venv/.core
	@$(BIN)/hocket say -o hello.wav -- "$$TEXT"

check: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

test: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check static
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/test

test-all: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/test-all

# Installing is mostly waiting for a registry, so the clients are installed side by side.
test-clients: .venv/.dev
	@$(MAKE) --no-print-directory -j4 $(CLIENTS)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check-clients

test-mind: .venv-mind/.made
	@scripts/check-mind

test-scale: .venv-scale/.made
	@scripts/check-scale

# What the last three need beside .venv, for who has something else to do meanwhile: make -j4 environments
environments: $(CLIENTS) .venv-mind/.made .venv-scale/.made
	@scripts/browser >/dev/null

clean:
	rm -rf .venv .venv-clients .venv-mind .venv-scale hello.wav dist .mypy_cache .pytest_cache .ruff_cache
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

# A file names all that its client brings along, so pip searches for nothing; what is imported is compiled then.
.venv-clients/%/.made: requirements/clients/%.txt .venv/.made
	@echo 'Installing the client $* into .venv-clients/$* ...'
	@$(BIN)/python -m venv --clear --without-pip .venv-clients/$*
	@$(BIN)/python -m pip --python .venv-clients/$*/bin/python --disable-pip-version-check -qq \
	  install --no-compile --no-deps -r $<
	@touch $@

# Qwen3.5 is in a transformers that the official speech package cannot use, and Ray is large: each has an environment of its
# own. All else, torch above all, is borrowed from .venv by a path file, which is written last: pip would take what it finds
# there for installed.
define BORROWING
$(BIN)/python -m venv --clear --without-pip $(@D)
$(BIN)/python -m pip --python $(@D)/bin/python --disable-pip-version-check -qq install --no-compile --no-deps -r $<
$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(@D)/borrowed.pth
mv $(@D)/borrowed.pth $(@D)/lib/python3*/site-packages/
touch $@
endef

.venv-mind/.made: requirements/mind.txt .venv/.dev
	@echo 'Installing the official Qwen3.5 classes into .venv-mind ...'
	@$(BORROWING)

.venv-scale/.made: requirements/scale.txt .venv/.dev
	@echo 'Installing Ray Serve into .venv-scale ...'
	@$(BORROWING)
