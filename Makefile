# The two commands: `make demo` and `make test`. Both set up everything they need; `make help` lists the rest.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON ?= python3
PACKAGE := airflow_provider_spark_datahub

VENV := .venv
SPARK_VENV := .venv-spark
UV_VENV := .cache/uv-venv
OPENLINEAGE_JAR := .cache/jars/openlineage-spark_2.13-1.53.0.jar
SPARK_CLASSES := .cache/spark-classes
SERVERS := .cache/servers
CONNECTORS := .cache/connectors

# uv takes the system's certificates, as pip and Java do, and the Python at hand instead of downloading one.
export UV_SYSTEM_CERTS := 1
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
# This project's environments, whichever one the caller's shell has activated.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME
# Tests start hundreds of interpreters: each would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

UV := $(UV_VENV)/bin/uv
BIN := $(VENV)/bin
STEP := @bash scripts/step

# A stamp inside each environment: it goes when the environment goes, and is remade when what it was built from changes.
UV_READY := $(UV_VENV)/.ready
DEV_READY := $(VENV)/.ready
PACKAGE_READY := $(VENV)/.package-ready
SPARK_READY := $(SPARK_VENV)/.ready

# Airflow keeps its configuration and database in AIRFLOW_HOME, by default in the home folder: not while we test.
# Compiled test modules are kept: without them, every run spends 15 seconds on compiling.
TEST_ENV := AIRFLOW_HOME=$(CURDIR)/.cache/airflow-test PYTHONDONTWRITEBYTECODE=
# Files that share servers go to one worker, expensive files first (tests/conftest.py).
PYTEST := $(TEST_ENV) $(BIN)/python -m pytest --dist loadscope --no-loadscope-reorder
# More workers than there are cores: tests also wait, for servers, disks and deadlines; those of `make quick` hardly do.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS = -n $(shell echo $$(($(CORES) + 2)))
quick: WORKERS = -n $(shell echo $$(($(CORES) + 1)))

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: dev spark ## a real Airflow runs two Spark tasks; shows their run tree and lineage in the terminal
	@$(BIN)/python scripts/demo.py

.PHONY: test
test: lint types contracts docs setup ## everything: lint, types, import contracts, docs, all tests with real Spark and Airflow
	@$(PYTEST) $(WORKERS) --cov --cov-report=term

.PHONY: quick
quick: dev ## the inner loop: tests without servers, Spark, Airflow processes or long waits; under a minute
	@$(PYTEST) $(WORKERS) -q -m "not spark and not airflow and not servers and not slow"

.PHONY: unit
unit: dev ## all tests that start neither Spark nor Airflow nor servers
	@$(PYTEST) $(WORKERS) -q -m "not spark and not airflow and not servers"

.PHONY: test-gms
test-gms: dev ## with DATAHUB_GMS_URL (and DATAHUB_GMS_TOKEN): lineage in a real DataHub, read back and removed
	@$(TEST_ENV) $(BIN)/python -m pytest -m gms tests/system/test_gms.py

.PHONY: lint
lint: dev ## ruff: rules and format; the project's words; its size
	$(STEP) "Lint (ruff check)" $(BIN)/ruff check .
	$(STEP) "Format (ruff format)" $(BIN)/ruff format --check .
	$(STEP) "Words (scripts/check_words.py)" $(BIN)/python scripts/check_words.py
	@$(BIN)/python scripts/budget.py

.PHONY: budget
budget: dev ## the size of package, docs and tests, and what the budget in pyproject.toml leaves
	@$(BIN)/python scripts/budget.py

.PHONY: format
format: dev ## fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: types
types: dev ## mypy, strict
	$(STEP) "Types (mypy --strict)" $(BIN)/mypy

.PHONY: contracts
contracts: dev ## import-linter: which layer may import what
	$(STEP) "Import contracts (import-linter)" $(BIN)/lint-imports

.PHONY: docs
docs: dev ## the documentation as a site in build/site; every link and anchor is checked
	$(STEP) "Documentation (mkdocs --strict)" env NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: figures
figures: dev spark ## measure the figures of docs/performance.md anew; ONLY=conversion.py selects
	@$(BIN)/python scripts/figures.py $(ONLY)

PROMTOOL ?= promtool

.PHONY: alerts
alerts: ## the alerts of docs/alerts, checked and tested by Prometheus' promtool (Debian's package prometheus has it)
	$(STEP) "Alerts (promtool check)" $(PROMTOOL) check rules docs/alerts/spark-lineage.yml
	$(STEP) "Alerts (promtool test)" $(PROMTOOL) test rules docs/alerts/spark-lineage-test.yml

.PHONY: screenshots
screenshots: dev ## the pictures of docs/screenshots anew, taken by tests in a real Chromium, one of them in a real Airflow
	@SCREENSHOTS="$(CURDIR)/docs/screenshots" $(TEST_ENV) $(BIN)/python -m pytest -q -k "light_and_dark or frame_and_colours" \
	    tests/visualization/test_browser.py tests/system/test_retried_shop.py

.PHONY: docs-release
docs-release: dev ## the documentation of this version, beside those of others, in the local branch gh-pages (nothing is pushed)
	$(STEP) "Documentation of this version (mike)" env NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH" bash -euc '\
	    version=$$(python -c "from $(PACKAGE) import __version__; print(*__version__.split(chr(46))[:2], sep=chr(46))"); \
	    mike deploy --update-aliases "$$version" latest && mike set-default latest && mike list'

.PHONY: build
build: dev ## wheel and sdist in dist/, checked by twine
	@rm -rf dist
	$(STEP) "Wheel and sdist" $(RELEASE_ENV) $(BIN)/python -m build --no-isolation
	$(STEP) "Metadata (twine check)" $(BIN)/twine check --strict dist/*
	@ls -l dist

# The time of the last commit: the same commit gives the same bytes.
RELEASE_ENV = env SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800)

# The address of the public repository's page, for the metadata of wheel and sdist (hatch_build.py).
export PROJECT_URL ?=

.PHONY: release
release: build ## build, and prove that a second build gives the same bytes; dist/sbom.cdx.json lists what users get
	@rm -rf build/again
	$(STEP) "Second build" $(RELEASE_ENV) $(BIN)/python -m build --no-isolation --outdir build/again
	$(STEP) "Reproducible (same bytes)" bash -euc 'for file in build/again/*; do cmp "$$file" "dist/$${file##*/}"; done'
	$(STEP) "SBOM (CycloneDX)" bash scripts/sbom "$(UV)" "$(BIN)" dist/sbom.cdx.json
	@rm -rf build/again
	@ls -l dist
	@echo "$(if $(PROJECT_URL),Addresses in the metadata: below $(PROJECT_URL),The metadata has NO ADDRESSES: set PROJECT_URL to the public repository's page before you publish this.)"

.PHONY: matrix
matrix: dev spark ## install, core tests and demo on other versions (docs/compatibility.md); ROWS="airflow-3.1 …" selects
	@$(BIN)/python scripts/matrix.py $(ROWS)

.PHONY: hooks
hooks: dev ## run the checks of .pre-commit-config.yaml on every commit
	@$(BIN)/pre-commit install

.PHONY: lock
lock: $(UV_READY) ## write requirements/*.txt anew from pyproject.toml and requirements/spark.in, keeping versions that still fit
	$(STEP) "Lock $(VENV)" $(UV) pip compile $(UPGRADE) --universal --python-version 3.11 --custom-compile-command "make lock" \
	    --no-emit-index-url --no-emit-find-links --extra openlineage --extra kafka --extra s3 --extra sql --extra livy --extra kubernetes --group dev pyproject.toml -o requirements/dev.txt
	$(STEP) "Lock providers without what they require" $(UV) pip compile $(UPGRADE) --universal --python-version 3.11 \
	    --custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links --no-deps requirements/managed.in -o requirements/managed.txt
	$(STEP) "Lock $(SPARK_VENV)" $(UV) pip compile $(UPGRADE) --universal --python-version 3.11 --custom-compile-command "make lock" \
	    --no-emit-index-url --no-emit-find-links requirements/spark.in -o requirements/spark.txt

.PHONY: lock-lowest
lock-lowest: ## for CI: lock the oldest Airflow that pyproject.toml allows instead of the newest
	@$(MAKE) lock UPGRADE="--upgrade-package 'apache-airflow==3.1.*'"

.PHONY: upgrade
upgrade: ## as lock, with the newest versions
	@$(MAKE) lock UPGRADE=--upgrade

.PHONY: clean
clean: ## remove what builds and tests left; keeps the environments and the jar
	@rm -rf dist build .coverage .coverage.* htmlcov .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@rm -rf .cache/airflow-test spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -not -path './.venv*' -not -path './.cache/*' -prune -exec rm -rf {} +

.PHONY: distclean
distclean: clean ## also remove the environments and the jar
	@rm -rf $(VENV) $(SPARK_VENV) .cache

.PHONY: setup
setup: dev spark servers $(CONNECTORS)/.ready $(SPARK_CLASSES)/.ready ## both environments, the OpenLineage jar, servers and connectors for tests

.PHONY: dev
dev: $(PACKAGE_READY)

.PHONY: spark
spark: $(SPARK_READY) $(OPENLINEAGE_JAR)

.PHONY: servers
servers: $(foreach server,kafka schema-registry s3 s3a gcs pegasus,$(SERVERS)/$(server)/.ready) ## Kafka, a schema registry, an S3 server, Spark's clients of S3 and GCS, and Pegasus, for tests

.PHONY: preflight
preflight:
	@bash scripts/preflight "$(PYTHON)"

$(UV_READY): requirements/uv.txt | preflight
	$(STEP) "Installer (uv) in $(UV_VENV)" bash -euc '"$(PYTHON)" -m venv --clear $(UV_VENV) && \
	    $(UV_VENV)/bin/python -m pip install --disable-pip-version-check -r requirements/uv.txt'
	@touch $@

$(DEV_READY): requirements/dev.txt requirements/managed.txt $(UV_READY) | preflight
	$(STEP) "Airflow and tools in $(VENV)" bash -euc '{ [ -x $(BIN)/python ] || $(UV) venv --python "$(PYTHON)" $(VENV); } && \
	    $(UV) pip sync --compile-bytecode --python $(BIN)/python requirements/dev.txt requirements/managed.txt'
	@touch $@

# Without build isolation: the build backend is the pinned one of requirements/dev.txt.
# `uv pip check` fails where pyproject.toml asks for something that the lock lacks; requirements/managed.in is not whole.
$(PACKAGE_READY): pyproject.toml $(PACKAGE)/__init__.py $(DEV_READY)
	$(STEP) "This package in $(VENV), editable" bash -euc '$(UV) pip install --python $(BIN)/python --no-deps --no-build-isolation -e . ; \
	    if $(UV) pip check --python $(BIN)/python 2>&1 | grep "^The package" | grep -v "airflow-providers-\(databricks\|google\)"; then \
	    echo "The lock does not fit pyproject.toml: run make lock."; exit 1; fi'
	@touch $@

$(SPARK_READY): requirements/spark.txt $(UV_READY) | preflight
	$(STEP) "Spark in $(SPARK_VENV)" bash -euc '{ [ -x $(SPARK_VENV)/bin/python ] || $(UV) venv --python "$(PYTHON)" $(SPARK_VENV); } && \
	    $(UV) pip sync --compile-bytecode --python $(SPARK_VENV)/bin/python requirements/spark.txt'
	@touch $@

FETCH_JARS := $(SPARK_VENV)/bin/python scripts/fetch_jars.py

$(OPENLINEAGE_JAR): requirements/jars/openlineage.txt | $(SPARK_READY)
	$(STEP) "OpenLineage jar in $(@D)" $(FETCH_JARS) $< --into $(@D) --spark-env $(SPARK_VENV)
	@touch $@

$(SERVERS)/%/.ready: requirements/jars/%.txt | $(SPARK_READY)
	$(STEP) "Server for tests in $(@D)" $(FETCH_JARS) $< --into $(@D) --spark-env $(SPARK_VENV)
	@touch $@

$(CONNECTORS)/.ready: requirements/connectors.txt requirements/jars/connectors.txt | $(SPARK_READY)
	$(STEP) "Iceberg, Delta and a Spark for them in $(@D)" bash -euc '{ [ -x $(@D)/spark/bin/python ] || $(UV) venv --python "$(PYTHON)" $(@D)/spark; } && \
	    $(UV) pip sync --python $(@D)/spark/bin/python requirements/connectors.txt && \
	    $(FETCH_JARS) requirements/jars/connectors.txt --into $(@D) --spark-env $(SPARK_VENV)'
	@touch $@

# Spark in tests starts four times faster with them. Without them (another user may write this folder), tests are slower.
$(SPARK_CLASSES)/.ready: $(PACKAGE)/capture/class_archive.py $(SPARK_READY) $(OPENLINEAGE_JAR) | $(PACKAGE_READY)
	$(STEP) "Spark's Java classes for tests in $(SPARK_CLASSES)" bash -euc 'env $(TEST_ENV) \
	    SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" PYSPARK_PYTHON="$(CURDIR)/$(SPARK_VENV)/bin/python" \
	    $(BIN)/spark-datahub warm --folder "$(CURDIR)/$(SPARK_CLASSES)" --openlineage-jar "$(CURDIR)/$(OPENLINEAGE_JAR)" \
	    --spark-submit "$(CURDIR)/$(SPARK_VENV)/bin/spark-submit" || mkdir -p $(SPARK_CLASSES)'
	@touch $@

