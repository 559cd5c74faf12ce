# Every target that needs the packages sets them up first, once, in .venv. `make` alone lists the targets.
# Works with GNU make 3.81 (macOS) and any POSIX shell.

# The Python that a new .venv is made with; empty: the first that fits, by its usual names.
PYTHON     ?=
PORT       ?= 5000
REPRO_ARGS ?=
BENCH_ARGS ?=
SWEEP_ARGS ?=
TEST_ARGS  ?= -n 2 --dist loadfile --no-loadscope-reorder
UV_VERSION  = 0.13.9

SHELL = /bin/sh
BIN   = .venv/bin
# Written last, so it is there only when the set-up was finished; holds the folder, because a .venv cannot be moved.
STAMP = .venv/.set-up
# There only while the set-up runs: finding it means that the last one was killed or failed.
BUSY  = .venv/.busy

export DVC_NO_ANALYTICS = 1
export MLFLOW_DISABLE_TELEMETRY = true
# The pages need none of the seven job processes that MLflow's server starts otherwise, and leaves behind if killed.
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION = false
# uv is to use .venv and nothing else, whatever environment is active in the user's shell.
export UV_PROJECT_ENVIRONMENT = .venv
unexport VIRTUAL_ENV
unexport UV_PYTHON
unexport PYTHONHOME
unexport PYTHONPATH

.PHONY: help setup repro test slow check docs ui sweep bench clean again

help:
	@echo "gigaslide: type one of"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-5s  %s\n", $$1, $$2 }' Makefile
	@echo "Settings: PYTHON=/path/to/python3.12  PORT=$(PORT)  REPRO_ARGS='-s train'  TEST_ARGS='-k meter'  BENCH_ARGS=--make-slide  SWEEP_ARGS=--fresh"

setup: $(STAMP) ## Python packages into .venv; the other targets do it by themselves
	@echo ".venv is ready: `$(BIN)/python --version`"

repro: $(STAMP) ## slides -> stores -> trained model -> evaluation -> report; does only what changed
	@[ -e .git ] || { echo "DVC needs a git repository: clone gigaslide with git, or type 'git init' here first." >&2; exit 1; }
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/dvc repro $(REPRO_ARGS)

test: $(STAMP) ## the tests, in minutes; TEST_ARGS chooses some
	@$(BIN)/python -m pytest -m "not slow" $(TEST_ARGS)

slow: $(STAMP) ## the tests that `make test` leaves out: real clusters and servers, whole trainings and sweeps
	@$(BIN)/python -m pytest -m slow $(TEST_ARGS)

check: $(STAMP) ## style, types, lock file, shell scripts: what a commit has to pass
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	@echo "uv lock --check"; UV_INDEX_URL= UV_DEFAULT_INDEX= $(BIN)/uv lock --check --offline --no-config --quiet 2>/dev/null || \
	{ echo "uv.lock does not fit pyproject.toml: run '.venv/bin/uv lock' and commit it" >&2; exit 1; }
	@if command -v shellcheck >/dev/null; then echo shellcheck .ci/run deploy; shellcheck .ci/run deploy/*.sh deploy/*/*.sh deploy/*/*.sbatch; \
	else echo "shellcheck is not installed: shell scripts were not checked"; fi

docs: $(STAMP) ## the Python API and the tutorial, run while they are built, as pages in build/docs
	@$(BIN)/gigaslide demo --only-slide
	@rm -rf build/docs
	@GIGASLIDE_TUTORIAL_SLIDE="$(CURDIR)/data/source/CMU-1-Small-Region.svs" $(BIN)/python -m sphinx -W --keep-going -q -b html docs/site build/docs
	@echo "The documentation is build/docs/index.html"

ui: $(STAMP) ## MLflow in the browser, on port 5000 of this machine (PORT=): runs side by side
	@server=`$(BIN)/python -c 'from gigaslide import config, mlflow_server as m; print(m.address(config.load().tracking.uri) or "")'` || exit; \
	if [ -n "$$server" ]; then echo "Runs are on the server of this project, $$server"; exit; fi; \
	if [ ! -f mlruns/mlflow.db ]; then echo "There is no run to show yet: type 'make repro' first."; exit 1; fi; \
	$(BIN)/python -c 'import socket; socket.create_server(("127.0.0.1", $(PORT)))' 2>/dev/null || \
	{ echo "Port $(PORT) is taken (on macOS often by the AirPlay receiver): type 'make ui PORT=5001'."; exit 1; }; \
	echo "Runs are on http://127.0.0.1:$(PORT) until you press Ctrl-C."; \
	exec $(BIN)/python -m mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db --host 127.0.0.1 --port $(PORT) --workers 1

sweep: $(STAMP) ## kernel sizes and strides compared under memory.budget_gb; goes on where it stopped
	@[ -e .git ] || { echo "DVC needs a git repository: clone gigaslide with git, or type 'git init' here first." >&2; exit 1; }
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/dvc repro --quiet prepare
	@$(BIN)/gigaslide sweep $(SWEEP_ARGS)

bench: $(STAMP) ## time and memory of a step beside the paper's, predicted memory, a cluster, preparing, predicting, ten seeds: takes hours
	@$(BIN)/gigaslide bench steps $(BENCH_ARGS)
	@$(BIN)/gigaslide bench memory
	@if [ -e data/bench/large.zarr ]; then $(BIN)/gigaslide bench training; fi
	@$(BIN)/gigaslide bench cluster
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/gigaslide bench seeds
	@if [ -e data/bench/large.tiff ]; then $(BIN)/gigaslide bench prepare && $(BIN)/gigaslide bench predict; fi

clean: ## remove what can be made again; keeps slides, runs, DVC's cache and .venv
	rm -rf results data/stores models/model.keras models/run.json models/checkpoint models/scratch
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "Kept: data (your slides and the demo's), mlruns, .dvc/cache, .venv. 'make repro' brings the rest back."

# Set-up again if the folder was moved, or the Python below .venv is gone.
READY := $(shell test "`cat $(STAMP) 2>/dev/null`" = "$(CURDIR)" && $(BIN)/python -c '' 2>/dev/null && echo yes)
ifneq ($(READY),yes)
$(STAMP): again
endif

$(STAMP): pyproject.toml uv.lock
	@set -e; \
	fits() { "$$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1; }; \
	usable() { fits $(BIN)/python && $(BIN)/python -c 'import pip' 2>/dev/null; }; \
	stop() { echo "Set-up stopped: $$1" >&2; exit 1; }; \
	if [ -e $(BUSY) ] || { [ -e $(STAMP) ] && [ "$(READY)" != yes ]; } || ! usable; then \
	  python=; \
	  for candidate in $(if $(PYTHON),"$(PYTHON)",python3.11 python3.12 python3 python); do \
	    if fits "$$candidate"; then python=$$candidate; break; fi; \
	  done; \
	  [ -n "$$python" ] || stop "Python 3.11 or 3.12 is needed, and $(if $(PYTHON),$(PYTHON) is not one,none is on the PATH); install one (python.org, or your system's packages), or name it: make setup PYTHON=/path/to/python3.12"; \
	  "$$python" -c 'import venv, ensurepip' 2>/dev/null || stop "$$python has no venv module; on Debian and Ubuntu it is in the package python3-venv (or python3.11-venv, python3.12-venv)."; \
	  echo "Set-up: a new .venv with `$$python --version`"; \
	  rm -rf .venv; mkdir .venv; touch $(BUSY); \
	  "$$python" -m venv .venv || stop "'$$python -m venv .venv' failed (its message is above)."; \
	fi; \
	touch $(BUSY); rm -f $(STAMP); \
	if [ "`$(BIN)/uv --version 2>/dev/null | cut -d ' ' -f 2`" != $(UV_VERSION) ]; then \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) || \
	    stop "uv $(UV_VERSION) could not be fetched from the package index; is there a network connection (behind a proxy: HTTPS_PROXY, with a mirror: PIP_INDEX_URL)? pip's message is above; the same command goes on from here."; \
	fi; \
	$(BIN)/uv sync --frozen --python $(BIN)/python || \
	  stop "the packages of uv.lock could not be installed; is there a network connection (behind a proxy: HTTPS_PROXY), and enough free disk? uv's message is above; what was fetched is kept, and the same command goes on from here."; \
	printf '%s' "$(CURDIR)" > $(STAMP); rm -f $(BUSY)
