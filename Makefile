# `make test` and `make demo` set up what they need; nothing else has to be run first. See CONTRIBUTING.md.

PYTHON ?= python3

# The one place that names PyTorch's version. It is pinned because a requirement such as torch>=2.11 takes the newest
# build there is, which on Linux brings gigabytes of CUDA, while an exact version finds the CPU build of it wherever one
# is at hand, and that suffices here. On a machine with a GPU the Python above should have its own PyTorch, which is
# then used as it is.
TORCH ?= torch==2.13.0

# Tests that run side by side. Those in ALONE take times or share a GPU, and come afterwards, one by one.
WORKERS ?= 2
ALONE = $(addprefix tests/,measuring/test_beside_real_work.py measuring/test_clock.py measuring/test_timer.py gpu)

BIN = .venv/bin
PY = $(BIN)/python
PIP = $(PY) -m pip --disable-pip-version-check install --quiet --no-compile
READY = .venv/ready
# Through the environment it also reaches the tests that run in Triton's interpreter.
QUICK = PYTEST_ADDOPTS='-m "not slow"'
BESIDE = OMP_NUM_THREADS=1 $(QUICK) $(PY) -m pytest -q $(addprefix --ignore=,$(ALONE))
STYLE = $(PY) -m ruff check . && $(PY) -m ruff format --check .

# Or else each of the many processes that tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

# Programs of one line each; exit status 0 is yes.
SYSTEM_TORCH_SEES_CUDA = import sys, torch; version = tuple(map(int, torch.__version__.split(".")[:2])); \
	sys.exit(not (version >= (2, 11) and torch.cuda.is_available()))
TORCH_IS_THE_SYSTEMS = import sys, torch; sys.exit(torch.__file__.startswith(sys.prefix))
TORCH_HAS_CUDA = import sys, torch; sys.exit(torch.version.cuda is None)

# A demonstration leaves nothing behind, and its tables need more than 80 columns.
DEMO = CONVWRIGHT_STORE=none COLUMNS=170 OMP_NUM_THREADS=1

.PHONY: help setup demo test test-all lint format docs clean

help: ## Say what there is to make.
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile

setup: $(READY) ## Make .venv, once, and again when pyproject.toml changes.

$(READY): pyproject.toml
	@echo "Setting up .venv; the first time this takes a few minutes."
	@if [ ! -x $(PY) ]; then \
		if $(PYTHON) -c '$(SYSTEM_TORCH_SEES_CUDA)' 2>/dev/null; then \
			echo "Using the PyTorch of $(PYTHON), which sees a GPU."; \
			$(PYTHON) -m venv --system-site-packages .venv; \
		else \
			$(PYTHON) -m venv .venv; \
		fi; \
	fi
	@$(PIP) --upgrade 'pip>=25.1'  # the first that knows dependency groups
	@$(PY) -W ignore -c '$(TORCH_IS_THE_SYSTEMS)' 2>/dev/null || $(PIP) '$(TORCH)'
	@if $(PY) -W ignore -c '$(TORCH_HAS_CUDA)'; then \
		$(PIP) --editable . --group dev; \
	else \
		$(PIP) --editable '.[plan]' --group dev --group cpu; \
	fi
	@touch $@

demo: $(READY) ## Show what convwright does, in less than a minute.
	@echo; echo "== What there is to gain in a small model, which is not changed"
	@$(DEMO) $(BIN)/convwright advise examples/advise_model.py:small --top 3
	@echo; echo "== The same network planned as a whole"
	@$(DEMO) $(BIN)/convwright optimize examples/advise_model.py:small
	@echo; echo "== The best ways to run one convolution on the CPU, measured in 200 ms"
	@$(DEMO) $(BIN)/convwright find ic16ih32oc32kh3ph1 --device cpu --mode quick --top 5 --no-refusals
	@echo; echo "== What an H200 would run, which need not be in this machine"
	@$(DEMO) $(BIN)/convwright find mb32ic256ih14oc256kh3ph1 --dtype fp16 --layout nhwc --device h200 --mode predict \
		--top 5 --no-refusals

# Types are checked while tests run: that keeps one core busy for most of a minute. A test that fails beside others has
# a second try by itself, since some wait for processes, which a busy machine may hold up; both are told.
test: $(READY) ## Check style, types and behaviour.
	$(STYLE)
	@$(PY) -m mypy > .venv/types.txt 2>&1 & types=$$!; \
	$(BESIDE) -n $(WORKERS) --dist worksteal; tests=$$?; \
	if [ $$tests = 1 ]; then echo "== What failed beside other tests, by itself"; \
		$(BESIDE) --last-failed --maxfail 5; tests=$$?; fi; \
	wait $$types; types=$$?; cat .venv/types.txt; exit $$(( tests > types ? tests : types ))
	$(PY) -m pytest -q $(ALONE)

test-all: QUICK =
test-all: test ## Check the same with the slow tests, which compile all kernels: an hour on two cores.

lint: $(READY) ## Check style and types only.
	$(STYLE)
	$(PY) -m mypy

format: $(READY) ## Bring the code into the house style.
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(READY) ## Bring the generated pages up to date and build the site, in site/.
	$(PY) docs/make_cli.py --write
	$(PY) docs/make_reference.py --write
	$(PY) docs/make_gains.py --write
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "The site is at site/index.html."

clean: ## Remove .venv and everything else that was made here.
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
