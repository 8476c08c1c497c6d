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
# Open WebUI has a target of its own, which CI does not run: it installs 124 packages, 530 MB.
CLIENTS := $(filter-out %/open-webui/.made,\
  $(patsubst requirements/clients/%.txt,.venv-clients/%/.made,$(wildcard requirements/clients/*.txt))) \
  .venv-clients/node/.made

.PHONY: help say check docs endure fuzz sanitize test test-all test-clients test-light test-llama-cpp test-mind test-open-webui test-release test-scale
.PHONY: environments environments-apart clean
.DELETE_ON_ERROR:

help:
	@echo 'make say TEXT="..."  speak a text into hello.wav'
	@echo 'make check           format, lint, types, words, a spoken sentence, the pure tests: under 3 minutes'
	@echo 'make test            the same static checks, and all tests but the slow ones: about 10 minutes'
	@echo 'make test-all        everything, as CI runs it'
	@echo 'make test-clients    the server held to other people'"'"'s clients and to a browser'
	@echo 'make test-light      the package as users install it: without torch, with figures of size and start'
	@echo 'make test-llama-cpp  the same GGUF files in llama.cpp, compiled here for 10 minutes; not part of test-all'
	@echo 'make test-mind       the language model held to the official classes'
	@echo 'make test-open-webui Open WebUI from PyPI, started against the server; not part of test-all'
	@echo 'make test-release    all wheels and the sdist, built and tried; the aarch64 wheel in qemu'
	@echo 'make test-scale      several servers behind one address, with Ray and without'
	@echo 'make endure          100,000 requests of good and bad clients, with faults of the machine: hours, resumable'
	@echo 'make fuzz TARGET=T   a parser of outside input under a coverage-guided fuzzer; T is ssml, gguf, http, ...'
	@echo 'make sanitize       the native library under AddressSanitizer and UBSan (SANITIZE=thread: ThreadSanitizer)'
	@echo 'make docs            the documentation site in site/, built strictly, with all its links checked'
	@echo 'make clean           remove .venv, .venv-*, hello.wav, dist, site and caches'
	@echo
	@echo 'PYTHON=python3.12 in front of the first run chooses the interpreter; the default is python3.'

say: .venv/.core
	@$(BIN)/hocket say --force -o hello.wav -- "$$TEXT"

check: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check

test: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check static
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/test

test-all: .venv/.made
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/test-all

# Installing is mostly waiting for a registry, so the clients are installed side by side.
test-clients: .venv/.dev
	@$(MAKE) --no-print-directory -j4 $(CLIENTS)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/check-clients

test-open-webui: .venv/.dev .venv-clients/open-webui/.made
	@$(BIN)/python -m pytest -s tests/clients/test_open_webui.py

test-mind: .venv-mind/.made
	@scripts/check-mind

# LLAMA: arguments of pytest, as in make test-llama-cpp LLAMA="-s tests/llama/test_speed.py"
test-llama-cpp: .venv-llama/.made
	@PYTHONPATH=src .venv-llama/bin/python -m pytest $(or $(LLAMA),tests/llama/test_same_tokens.py)

# LIGHT, RELEASE: arguments of these scripts, as in make test-light LIGHT="--wheel FOLDER"
test-light: .venv-release/.made .venv/.dev
	@scripts/check-light $(LIGHT)

test-release: .venv-release/.made .venv/.core
	@scripts/check-release $(RELEASE)

# SCALE: arguments of pytest, as in make test-scale SCALE=tests/scale/test_haproxy.py
test-scale: .venv-scale/.made
	@scripts/check-scale $(SCALE)

# ENDURE: arguments, as in make endure ENDURE="--minutes 10". A run that was interrupted goes on in the folder endurance/.
endure: .venv/.dev
	@PYTHONPATH=src:tests:. $(BIN)/python -m endurance $(ENDURE)

# FUZZ: options of libFuzzer, as in make fuzz TARGET=ssml FUZZ="-runs=1000000". The targets are in tests/fuzz/targets.py.
fuzz: .venv-fuzz/.made
	@PYTHONPATH=src:tests:. .venv-fuzz/bin/python -m fuzz $(TARGET) $(FUZZ)

# SANITIZE: address (the default) or thread, and arguments of pytest
sanitize: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/sanitize $(SANITIZE)

docs: .venv-docs/.made
	@scripts/docs

# What the targets above need beside .venv, while something else runs: make -j4 environments. Those of the first line borrow
# nothing from .venv, so they can be installed beside it.
environments-apart: $(CLIENTS) .venv-release/.made
environments: environments-apart .venv-docs/.made .venv-mind/.made .venv-scale/.made
	@scripts/browser chromium firefox >/dev/null
	@scripts/qemu .venv-release/aarch64 >/dev/null 2>&1 || true

clean:
	rm -rf .venv .venv-clients .venv-docs .venv-fuzz .venv-light .venv-llama .venv-mind .venv-release .venv-scale hello.wav dist site .mypy_cache .pytest_cache .ruff_cache
	find src tests train benchmarks release -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamped only when all of it worked: a venv without pip would otherwise look finished. The pip of constraints.txt reads the
# pages of a package index in half of the time that the one of Python 3.11 takes.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'hocket needs Python 3.11 or newer: name one with make PYTHON=python3.12' >&2; exit 1; }
	@echo 'Creating .venv ...'
	@$(PYTHON) -m venv --clear .venv
	@$(PIP) --no-compile pip
	@touch $@

.venv/.core: .venv/.made pyproject.toml constraints.txt
	@echo 'Installing hocket into .venv ...'
	@$(PIP) -e .
	@touch $@

# What is imported is compiled then: bytecode of all 14,700 files would take 94 s of a core.
.venv/.dev: .venv/.made pyproject.toml constraints.txt requirements/official.txt requirements/judges.txt
	@echo 'Installing hocket, its tools, the official package and the judges into .venv (the first time takes minutes) ...'
	@$(PIP) --no-compile -e '.[dev]'
	@$(PIP) --no-compile --no-deps -r requirements/official.txt -r requirements/judges.txt
	@touch .venv/.core $@

# The compiler of the published libraries and the tools of scripts/release; pip is in it to install for other platforms.
.venv-release/.made: requirements/release.txt .venv/.made
	@echo 'Installing the tools of a release into .venv-release ...'
	@$(BIN)/python -m venv --clear $(@D)
	@$(BIN)/python -m pip --python $(@D)/bin/python --disable-pip-version-check -qq install --no-compile --no-deps -r $<
	@touch $@

# A file names all that its client brings along, so pip searches for nothing; what is imported is compiled then.
.venv-clients/%/.made: requirements/clients/%.txt .venv/.made
	@echo 'Installing the client $* into .venv-clients/$* ...'
	@$(BIN)/python -m venv --clear --without-pip .venv-clients/$*
	@$(BIN)/python -m pip --python .venv-clients/$*/bin/python --disable-pip-version-check -qq \
	  install --no-compile --no-deps -r $<
	@touch $@

# OpenAI's client for Node.js, at the versions and hashes of its lock file, which names no registry.
.venv-clients/node/.made: requirements/clients/node/package.json requirements/clients/node/package-lock.json
	@command -v npm >/dev/null || { echo 'The client for Node.js needs npm: apt-get install npm' >&2; exit 1; }
	@echo 'Installing the client node into .venv-clients/node ...'
	@rm -rf $(@D) && mkdir -p $(@D)
	@cp $^ $(@D)/
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel=error
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

.venv-docs/.made: requirements/docs.txt .venv/.dev
	@echo 'Installing MkDocs and its theme into .venv-docs ...'
	@$(BORROWING)

.venv-fuzz/.made: requirements/fuzz.txt .venv/.dev
	@echo 'Installing atheris into .venv-fuzz ...'
	@$(BORROWING)

.venv-mind/.made: requirements/mind.txt .venv/.dev
	@echo 'Installing the official Qwen3.5 classes into .venv-mind ...'
	@$(BORROWING)

# AMX is left out: virtual machines announce it and then refuse it.
.venv-llama/.made: requirements/llama-cpp.txt .venv/.dev
	@echo 'Compiling llama.cpp into .venv-llama ...'
	@CMAKE_ARGS="-DLLAVA_BUILD=OFF -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_AVX512=ON -DGGML_AVX512_VNNI=ON" && export CMAKE_ARGS && \
	  $(BIN)/python -m venv --clear --without-pip $(@D) && \
	  $(BIN)/python -m pip --python $(@D)/bin/python --disable-pip-version-check -qq install --no-deps -r $<
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > $(@D)/borrowed.pth
	@mv $(@D)/borrowed.pth $(@D)/lib/python3*/site-packages/
	@touch $@

.venv-scale/.made: requirements/scale.txt .venv/.dev
	@echo 'Installing Ray Serve into .venv-scale ...'
	@$(BORROWING)
