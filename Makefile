.DEFAULT_GOAL := help
.PHONY: help setup engines server demo serve-demo test test-engines test-server certify test-long check format bench bench-engines bench-peers reference docs screenshots plots clean

PYTHON ?= python3
BIN := .venv/bin
# One .venv in two steps: what dpsql itself needs, which is enough for the demo, and then what its tests need.
RUN := .venv/.run
TEST := .venv/.test
# Which package pip is at, on one line. Errors go to stderr as they are; pip's own exit code is kept beside the pipe.
PIP = { $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off $(1) || touch .venv/.failed; } \
	| awk '/^ *(Collecting|Installing)/ {printf "\r\033[K  %.70s", $$0; fflush()} END {printf "\r\033[K"}'; \
	! rm .venv/.failed 2>/dev/null

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(TEST)  ## create .venv with everything in it; instantaneous when nothing changed

# In a variable, since a comma would end the argument of a call.
FOR_TESTS = -e '.[dev,oracles]'

$(RUN): pyproject.toml
	@echo "setting up .venv with what dpsql needs (about 320 MB) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(call PIP,-e .)
	@touch $@

$(TEST): $(RUN)
	@echo "adding what the tests need (about 1 GB) ..."
	@$(call PIP,$(FOR_TESTS))
	@touch $@

engines: setup  ## install PostgreSQL, pgbouncer and Spark, so that their tests are not skipped
	@test -d /usr/lib/postgresql || command -v initdb >/dev/null || (apt-get update -qq && apt-get install -y -qq postgresql)
	@test -x /usr/sbin/pgbouncer || command -v pgbouncer >/dev/null || (apt-get update -qq && apt-get install -y -qq pgbouncer)
	@command -v java >/dev/null || (apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless)
	@$(BIN)/python -c "import pyspark, grpc" 2>/dev/null || \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[spark]'

server: setup  ## install PostgreSQL clients, so that the tests of the server are not skipped
	@command -v psql >/dev/null || (apt-get update -qq && apt-get install -y -qq postgresql-client)
	@$(BIN)/python -c "import asyncpg, pg8000, psycopg2" 2>/dev/null || \
		$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[clients]'

demo: $(RUN)  ## ask a small shop some private questions
	@$(BIN)/python examples/demo.py

serve-demo: $(RUN)  ## serve the small shop to one analyst on 127.0.0.1
	@$(BIN)/python examples/serve_demo.py

test: setup  ## run the whole suite
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-engines: setup  ## run the tests on Spark, which takes a while to start
	@$(BIN)/python -m pytest -q -m "spark and not long" tests/engines

test-server: server  ## run the tests of the server with PostgreSQL clients
	@$(BIN)/python -m pytest -q -m server tests/server

certify: engines  ## ask PostgreSQL and Spark every question of the tests: an hour
	@$(BIN)/python benchmarks/certify_engines.py

test-long: setup  ## run the statistical tests that take minutes
	@$(BIN)/python -m pytest -n 2 -q -m long

check: setup  ## lint, formatting, types, architecture
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/whole/test_architecture.py

format: setup  ## sort imports and format the code
	@$(BIN)/ruff check --quiet --select I --fix
	@$(BIN)/ruff format --quiet

# What each printed is kept under build/bench, and benchmarks/RESULTS.md is made of it.
BENCH = mkdir -p build/bench; echo "== $(1)"; \
	{ $(BIN)/python -W ignore $(1) || touch build/bench/.failed; } | tee build/bench/$$(basename $(1) .py).txt

# Runs some benchmarks, whatever the first of them give, and fails in the end if one of them did.
MEASURE = rm -f build/bench/.failed; for file in $(1); do $(call BENCH,$$file); done; \
	$(BIN)/python benchmarks/write_results.py; \
	! rm build/bench/.failed 2>/dev/null || { echo "a goal was missed, or a benchmark failed: see above"; exit 1; }
ON_SERVERS := benchmarks/bench_servers.py benchmarks/bench_cluster.py
# Some of them alone:  make bench BENCHES=benchmarks/bench_tpch.py
BENCHES ?= $(filter-out $(ON_SERVERS),$(wildcard benchmarks/bench_*.py))

bench: setup  ## run the benchmarks on DuckDB and write benchmarks/RESULTS.md; fails if one of them missed its goal
	@$(call MEASURE,$(BENCHES))

bench-engines: engines  ## the benchmarks on PostgreSQL and Spark
	@$(call MEASURE,$(ON_SERVERS))

bench-peers: setup  ## the same question to SmartNoise SQL, Qrlew, PipelineDP and OpenDP, each installed under build/peers
	@$(call MEASURE,benchmarks/compare_peers.py)

reference: setup  ## rewrite the lists in docs/sql.md and docs/schema.md, and the JSON Schema that editors use
	@$(BIN)/python docs/reference.py

docs: setup  ## build the documentation in build/site; a warning is an error
	@$(BIN)/python -c "import material, mkdocstrings_handlers.python" 2>/dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs --quiet build --strict
	@echo "build/site/index.html"

screenshots: setup  ## take the pictures in docs/images again; installs Chromium where it is missing
	@command -v chromium >/dev/null || apt-get install -y -qq chromium
	@$(BIN)/python docs/screenshots.py

plots: setup  ## measure mechanisms and scale, and draw the plots of the documentation: a quarter of an hour
	@$(BIN)/python benchmarks/plot_mechanisms.py
	@$(BIN)/python benchmarks/plot_local.py
	@$(BIN)/python benchmarks/plot_choosing.py
	@$(BIN)/python benchmarks/plot_scale.py

clean:  ## remove everything that can be made again
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
