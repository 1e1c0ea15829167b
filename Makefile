# What a developer runs; `make` alone lists it. Set-up happens by itself, in .venv, and again only
# when pyproject.toml has changed.
#
#   PYTHON=/path/to/python3.12           interpreter for .venv
#   VENV=.venv-3.12                      another environment than .venv
#   TEST_ARGS="tests/meshes -k parse"    more arguments for pytest
#   DEMO_ARGS, BROWSER_ARGS, SCREENSHOTS_ARGS, SITE_ARGS, HOST_CHECK_ARGS, VALIDATE_ARGS, BENCH_ARGS,
#   PARITY_ARGS, FOREIGN_ARGS, GPU_ARGS  likewise for the others

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready-dev
# Bytecode is kept, whatever the environment says: without it each of pytest's processes translates
# all tests anew (18 s of CPU instead of 9 to collect them), and each command that a test starts.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

# The device-less GPU compiler is published for Linux on x86-64 only.
READY_ALL := $(READY)
LONG_TIER := not gpu and not deviceless and not browser
ifeq ($(shell uname -sm),Linux x86_64)
READY_ALL := $(VENV)/.ready-dev,deviceless
LONG_TIER := not gpu and not browser
endif

.DEFAULT_GOAL := help
.PHONY: help demo test test-newest test-old-cpu test-all smoke browser screenshots docs pyodide site lint format host-check validate bench parity foreign gpu release clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(READY_ALL)  ## calibrate, predict, train on 8 devices, compare, price the step on H100
	$(BIN)/python -m experiments.demo $(DEMO_ARGS)

test: $(READY)  ## the fast tests, and the 25 slowest of them
	$(PYTEST) --durations=25 $(TEST_ARGS)

test-newest:  ## the fast tests under the newest Python here, which brings the newest jax
	@newest=$$(sh tools/newest.sh); [ -z "$$newest" ] || \
		$(MAKE) test VENV=.venv-newest PYTHON="$$newest"

test-old-cpu: $(READY)  ## the fast tests with the last digits of an older processor
	env $$($(BIN)/python tools/old_cpu.py) $(PYTEST) $(TEST_ARGS)

test-all: $(READY_ALL)  ## all tests: full grids, GPU compiles without a GPU, real installs
	$(PYTEST) -m "$(LONG_TIER)" --hypothesis-profile thorough $(TEST_ARGS)
	@$(MAKE) test-old-cpu
	@$(MAKE) test-newest

smoke: $(READY_ALL)  ## one program compiled for GPUs that are not here, read and priced
	$(BIN)/python -m pytest -m deviceless tests/test_deviceless_smoke.py

browser: $(VENV)/.ready-dev,browser  ## every lesson and page in a headless Chromium, on a desktop and on a phone
	$(BIN)/python -m pytest -m browser tests/browser $(BROWSER_ARGS)

screenshots: $(VENV)/.ready-dev,browser  ## pictures of six pages, into docs/images
	$(BIN)/python -m experiments.screenshots $(SCREENSHOTS_ARGS)

docs: $(VENV)/.ready-dev,docs  ## these pages with Sphinx, in build/docs; needs no network to be read
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs

pyodide: $(READY)  ## Python for a browser, as far as it can be had here, in build/pyodide; says what cannot
	$(BIN)/python -m experiments.site.runtime

site: docs pyodide $(VENV)/.ready-dev,site  ## pages, lessons and documentation as a static site, in build/site; 5 minutes, then 2
	$(BIN)/python -m experiments.site $(SITE_ARGS)

lint: $(READY)  ## format check, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

host-check: $(READY)  ## predicted against measured steps on 8 devices of this machine, 10 minutes
	$(BIN)/python -m experiments.host_check $(HOST_CHECK_ARGS)

validate: $(READY_ALL)  ## predicted against published training steps, memory and collectives, 5 minutes
	$(BIN)/python -m experiments.published.validate $(VALIDATE_ARGS)

bench: $(READY)  ## time this project's own speed promises
	$(BIN)/python -m experiments.bench $(BENCH_ARGS)

parity: .venv-parity/.ready  ## logits against Hugging Face's; brings torch, 6 GB, in an environment of its own
	JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=8 .venv-parity/bin/python -m experiments.parity $(PARITY_ARGS)

foreign: $(READY_ALL)  ## programs of others priced and held against counts by hand, 6 minutes
	$(BIN)/python -m experiments.foreign $(FOREIGN_ARGS)

gpu:  ## throughput, MFU and memory on the GPUs here; installs nothing
	@sh tools/gpu.sh $(GPU_ARGS)

release: $(READY)  ## wheel, source distribution and notes in dist/, tried in a fresh environment; uploads nothing
	$(BIN)/python tools/release.py

clean:  ## remove caches and built packages; runs and .venv stay
	rm -rf build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

.venv-parity/.ready: pyproject.toml tools/setup.sh
	@sh tools/setup.sh parity .venv-parity
	@touch $@

$(VENV)/.ready-%: pyproject.toml tools/setup.sh
	@sh tools/setup.sh $* $(VENV)
	@touch $@
