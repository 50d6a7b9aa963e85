# Everything is installed into .venv; the stamp files in it make the second run of any target quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NATIVE_SOURCES := CMakeLists.txt $(shell find native -name tests -prune -o -type f -print)
NATIVE_TESTS := build/native-asan
PEERS := build/peers-venv
CLIS := build/clis
CLI_PACKAGES := @openai/codex@0.171.0 @anthropic-ai/claude-code@2.1.332
JS := tests/clients/js
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
SERVE_ARGS ?=
ARGS ?=

.PHONY: help serve test test-clis lint types native-test format bench bench-peers bench-http bench-agent bench-tiers bench-grammars clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name what; do printf '  make %-12s %s\n' "$$name" "$$what"; done

serve: $(VENV)/.installed  ## serve the embedded model on http://127.0.0.1:8000 (SERVE_ARGS="--port 9000 …")
	@$(BIN)/ultrafast serve $(SERVE_ARGS)

test: lint types native-test $(VENV)/.clients $(VENV)/.js  ## lint, types, native tests under sanitizers, pytest (ARGS="-k name …")
	$(BIN)/python -m pytest $(ARGS)

test-clis: $(VENV)/.clients $(CLIS)/.installed  ## run Codex and Claude Code against a server (CAPTURES=write keeps what they send)
	PATH="$(abspath $(CLIS))/node_modules/.bin:$$PATH" CAPTURES="$(CAPTURES)" \
	  $(BIN)/python -m pytest tests/clients/test_codex.py tests/clients/test_claude_code.py $(ARGS)

lint: $(VENV)/.dev  ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## check types
	$(BIN)/mypy

native-test: $(VENV)/.tools  ## build native/tests with ASan and UBSan, and run them
	@$(BIN)/cmake -S . -B $(NATIVE_TESTS) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja --log-level=WARNING \
	  -DULTRAFAST_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS="$(SANITIZE)"
	@$(BIN)/cmake --build $(NATIVE_TESTS)
	$(BIN)/ctest --test-dir $(NATIVE_TESTS) --output-on-failure --no-tests=error

format: $(VENV)/.dev  ## rewrite the Python sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed  ## measure decode and prompt speed beside the machine's limit (ARGS="--json FILE …")
	@$(BIN)/ultrafast bench engine $(ARGS)

bench-peers: $(VENV)/.installed $(PEERS)/.installed  ## compare with other engines on this machine (ARGS="--quick …")
	@$(BIN)/python benchmarks/peers.py $(ARGS)

bench-http: $(VENV)/.installed  ## measure what the way over HTTP costs (ARGS="--json FILE …")
	@$(BIN)/python benchmarks/http_path.py $(ARGS)

bench-agent: $(VENV)/.installed  ## hold an agent's conversations over WebSocket and over HTTP (ARGS="--json FILE …")
	@$(BIN)/python benchmarks/agent_socket.py $(ARGS)

bench-tiers: $(VENV)/.installed  ## measure what the tiers promise, beside a load (ARGS="lane gap --json FILE …")
	@$(BIN)/python benchmarks/tiers.py $(ARGS)

bench-grammars: $(VENV)/.installed  ## measure constrained decoding (ARGS="masks", "coverage SUITE" or "decode")
	@$(BIN)/python benchmarks/grammars.py $(ARGS)

clean:  ## back to a fresh clone; downloaded models stay in the user cache
	rm -rf $(VENV) build dist $(JS)/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests tools benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# Prints a requirement list of pyproject.toml, one a line: pip before 25.1 cannot install dependency groups itself.
requires = $(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['$(1)']['$(2)'], sep='\n')"
fail = { echo "make: $(1)" >&2; exit 1; }

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || $(call fail,$(PYTHON) not found. Install Python 3.11 or newer$(comma) or say where it is: make PYTHON=/path/to/python3)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  $(call fail,$$($(PYTHON) --version) is too old. Install Python 3.11 or newer$(comma) or say where it is: make PYTHON=/path/to/python3)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(call fail,Python has no venv module. Install it (Debian, Ubuntu: python3-venv))
	@$(PYTHON) -c 'import os, sysconfig as s, sys; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || \
	  $(call fail,Python.h not found. Install the Python headers (Debian$(comma) Ubuntu: python3-dev; Fedora: python3-devel))
	@for compiler in $${CXX:-c++ g++ clang++}; do command -v "$$compiler" >/dev/null && exit 0; done; \
	  $(call fail,no C++ compiler ($${CXX:-c++$(comma) g++ or clang++}). Install one (Debian$(comma) Ubuntu: g++; macOS: xcode-select --install))
	@echo "Setting up $(VENV) (the first time takes a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.tools: pyproject.toml $(VENV)/.created
	@echo "Installing the build tools"
	@$(call requires,build-system,requires) > $(VENV)/build-requires.txt
	@$(PIP) -r $(VENV)/build-requires.txt 'cmake>=3.20' ninja
	@touch $@

# Without isolation the build tree and tools persist, so a change in native/ compiles only what it touches.
$(VENV)/.installed: $(NATIVE_SOURCES) $(VENV)/.tools
	@echo "Building and installing ultrafast"
	@$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "Installing the development tools"
	@$(call requires,dependency-groups,dev) > $(VENV)/dev-requires.txt
	@$(PIP) -r $(VENV)/dev-requires.txt
	@touch $@

$(VENV)/.clients: $(VENV)/.dev
	@echo "Installing the clients that are tested"
	@$(call requires,dependency-groups,clients) > $(VENV)/clients-requires.txt
	@$(PIP) -r $(VENV)/clients-requires.txt
	@touch $@

# A machine without Node.js skips the tests of the client for JavaScript.
$(VENV)/.js: $(JS)/package-lock.json $(VENV)/.created
	@if command -v npm >/dev/null; then npm ci --silent --prefix $(JS) && touch $@; else echo "No npm: skipping the JavaScript client"; fi

$(CLIS)/.installed: Makefile
	@echo "Installing $(CLI_PACKAGES) (some 800 MB)"
	@mkdir -p $(CLIS)
	@npm install --silent --no-audit --no-fund --prefix $(CLIS) $(CLI_PACKAGES)
	@touch $@

$(PEERS)/.installed: benchmarks/peers-requirements.txt
	@echo "Installing the other engines; llama.cpp is compiled for this machine (some minutes)"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

comma := ,
