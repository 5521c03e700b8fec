# make demo            the main job on real input, on SQLite, in a virtual environment of its own
# make test            everything, with the servers it needs         make test PYTEST_ARGS="-k fencing -x"
# make lint            style, types, import layers, places of backend code, messages of new commits
# make format          correct the style of the code
# make docs            the documents, into .build/docs; a warning is an error
# make torture         many clients and random faults, and a checker of what they saw
#                      make torture BACKEND=postgres SECONDS=600 SEED=7
# make servers         install the servers of the tests              make servers SERVERS=redis
# make servers-list    what servers there are, and what is installed
# make bench-claim     measurements, see CONTRIBUTING.md; also bench-before, bench-demo, bench-horizon,
#                      bench-look, bench-rollout, bench-wait
# make dist            the packages for a release, into dist
# make clean           remove what was built; make distclean also removes .venv and .servers

SHELL := /bin/sh
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
RUN := $(VENV)/bin/python
DEMO := .build/demo
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
SHIPPED := pyproject.toml $(wildcard alembic.ini) $(shell find src schema procedures lua examples -type f -not -name '*.pyc' 2>/dev/null)

WORKERS ?= 8
PYTEST_ARGS ?=
# The servers to start, by name (make servers-list); without it the servers of all backends.
SERVERS ?=
ONLY := $(if $(SERVERS),--only $(SERVERS))
WITH_SERVERS := $(RUN) -m tests.servers run $(ONLY) --

.PHONY: help demo torture test lint docs format servers servers-list bench-claim bench-before bench-demo bench-horizon bench-look bench-rollout bench-wait dist clean distclean

help:
	@sed -n '/^#/!q; s/^# //p' Makefile

demo: $(DEMO)/.installed
	@$(DEMO)/bin/fairlane demo $(DEMO_ARGS)

# Bytecode is kept whatever the environment says: every one of the many processes would compile everything again.
test: $(VENV)/.installed
	@PYTHONDONTWRITEBYTECODE= FAIRLANE_TEST_REQUIRE_SERVERS=1 $(WITH_SERVERS) $(RUN) -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

lint: $(VENV)/.docs
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	@$(RUN) -m tests.rooms
	@.ci/commits

docs: $(VENV)/.docs
	$(RUN) -m sphinx --builder html --fail-on-warning --keep-going --quiet --jobs auto docs .build/docs/html --doctree-dir .build/docs/doctrees
	@echo "read .build/docs/html/index.html"

format: $(VENV)/.installed
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

BACKEND ?= sqlite
SECONDS ?= 60
SEED ?= 1
torture: $(VENV)/.installed
	$(RUN) -m tests.servers install
	$(RUN) -m tests.torture --backend $(BACKEND) --seconds $(SECONDS) --seed $(SEED)

servers: $(VENV)/.installed
	$(RUN) -m tests.servers install $(ONLY)

servers-list: $(VENV)/.installed
	@$(RUN) -m tests.servers list

bench-claim: $(VENV)/.bench
	@$(WITH_SERVERS) $(RUN) -m bench.claim $(BENCH_ARGS)

bench-before: $(VENV)/.bench
	@$(RUN) -m tests.servers run --only postgres,redis -- $(RUN) -m bench.before $(BENCH_ARGS)

bench-horizon: $(VENV)/.installed
	@$(RUN) -m tests.servers run --only postgres -- $(RUN) -m bench.horizon $(BENCH_ARGS)

# How long claims wait while a large queue on Postgres is migrated beside clients of the previous release.
bench-rollout: $(VENV)/.installed
	@$(RUN) -m tests.servers run --only postgres -- $(RUN) -m bench.rollout $(BENCH_ARGS)

bench-wait: $(VENV)/.installed
	@$(RUN) -m tests.servers run --only postgres,redis -- $(RUN) -m bench.wait $(BENCH_ARGS)

# What it costs to look at a large queue on SQLite.
bench-look: $(VENV)/.installed
	$(RUN) -m bench.look $(BENCH_ARGS)

bench-demo: $(VENV)/.bench
	@$(WITH_SERVERS) $(RUN) -m bench.demo $(BENCH_ARGS)

dist: $(VENV)/.installed
	rm -rf dist
	$(RUN) -m build

clean:
	rm -rf .build build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests bench schema -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf $(VENV) .servers

$(VENV)/.installed: pyproject.toml
	@[ -x $(RUN) ] || .ci/venv $(VENV)
	@echo "installing Fairlane and all that its tests need into $(VENV)" >&2
	@$(RUN) $(PIP_INSTALL) --editable '.[all,dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	@$(RUN) $(PIP_INSTALL) --editable '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed $(wildcard bench/requirements.txt)
	@[ ! -e bench/requirements.txt ] || $(RUN) $(PIP_INSTALL) --requirement bench/requirements.txt
	@touch $@

$(DEMO)/.installed: $(SHIPPED)
	@[ -x $(DEMO)/bin/python ] || { mkdir -p .build && .ci/venv $(DEMO); }
	@echo "installing Fairlane into $(DEMO)" >&2
	@$(DEMO)/bin/python $(PIP_INSTALL) --force-reinstall --no-deps .
	@$(DEMO)/bin/python $(PIP_INSTALL) .
	@touch $@
