# `make run` starts one node; `make test` runs every test. Both make the same environment first.
# PYTHON: any CPython 3.11 or 3.12 (LevelDB's wheel, plyvel, exists for these).
SHELL := /bin/bash
# The first that really runs: a name on PATH may be a version manager's empty promise.
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: help run test java prometheus sim hops chaos soak fuzz spark-faults tasks-faults graph-faults spark-example monitor-example bench models docs lint fmt proto facade clean
help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# One stamp per set of extras: nothing is installed again until pyproject.toml changes.
$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "weft needs Python 3.11 or 3.12: install it, or run make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { echo "no venv module: on Debian, apt install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.server: pyproject.toml $(VENV)/.python
	$(PIP) install -e '.[server]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.python
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.server

run: $(VENV)/.server  ## one node on 127.0.0.1:7700, its data under .weft/
	$(BIN)/weft serve --data .weft

# Most tests wait for processes and disks: three at a time, file by file, keep two cores busy.
test: $(VENV)/.dev java prometheus  ## every test
	$(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

# Spark needs Java. It is installed where that can be done without asking; else its tests are skipped,
# and this line says why. It never fails.
java:
	@java -version >/dev/null 2>&1 && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Java for the Spark tests"; apt-get update -qq >/dev/null 2>&1; \
	  for p in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$p >/dev/null 2>&1 && break; done; fi; \
	java -version >/dev/null 2>&1 || \
	  echo "no Java: the Spark tests are skipped; Spark needs Java 17 or later (apt install openjdk-17-jre-headless)"

# The same for Prometheus, which reads our rules and scrapes the nodes in tests. It is not started.
prometheus:
	@command -v prometheus >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing Prometheus for the tests of metrics"; apt-get update -qq >/dev/null 2>&1; \
	  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends prometheus >/dev/null 2>&1; fi; \
	command -v prometheus >/dev/null || \
	  echo "no Prometheus: tests that scrape with it are skipped (apt install prometheus)"

sim: $(VENV)/.dev  ## the cluster's core under faults: SEEDS=n fresh ones, or SEED=k again
	$(BIN)/python -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200))

hops: $(VENV)/.bench  ## hops and balance against the model, and the plots of docs/scaling.md
	$(BIN)/python -m tests.sim.hops

$(VENV)/.bench: pyproject.toml $(VENV)/.python
	$(PIP) install -e '.[bench]'
	@touch $@ $(VENV)/.server

bench: $(VENV)/.bench  ## Weft beside its peers, in one run; ARGS="--quick", ARGS=--help
	$(BIN)/python -m bench.peers $(ARGS)

tasks-faults: $(VENV)/.dev  ## tasks while workers, supervisors and nodes are killed: ARGS="--nodes 1 --seed 7"
	$(BIN)/python -m tests.tasks.faults $(ARGS)

graph-faults: $(VENV)/.dev  ## graphs of 10,000 tasks under the same kills: ARGS="--nodes 1 --rounds 10"
	$(BIN)/python -m tests.tasks.graph_faults $(ARGS)

models: $(VENV)/.dev  ## the papers' figures from the models, in build/models; ARGS="--only convoy"
	$(BIN)/python -m weft.models.figures --out build/models $(ARGS)

$(VENV)/.docs: pyproject.toml $(VENV)/.python
	$(PIP) install -e '.[docs]'
	@touch $@ $(VENV)/.server

# A warning, such as a dead link or anchor, is an error. The generated pages are written again first.
docs: $(VENV)/.docs  ## the documents as a site in build/docs, with dead links as errors
	$(BIN)/python -m docs.site
	rm -rf build/docs
	$(BIN)/python -m sphinx -n -W --keep-going -q -d build/docs/.doctrees -c docs/site . build/docs
	@echo "open build/docs/index.html"

chaos: $(VENV)/.dev  ## real clusters under real faults: RUNS=n of each, SCENARIO="kill-one cut"
	$(BIN)/python -m tests.chaos --runs $(or $(RUNS),10) $(SCENARIO)

soak: $(VENV)/.dev  ## an hour of mixed load, kills, joins and leaves: MINUTES=n
	$(BIN)/python -m tests.chaos.soak --minutes $(or $(MINUTES),60) --json soak.json --plot soak.png

fuzz: $(VENV)/.dev  ## garbage on all ports: MINUTES=n
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),30)

spark-faults: $(VENV)/.dev java  ## Spark with drivers, executors and nodes killed: SCENARIO="executor"
	$(BIN)/python -m tests.spark.faults $(SCENARIO) $(ARGS)

spark-example: $(VENV)/.dev java  ## clicks counted by Spark, on nodes that it starts itself
	$(BIN)/python spark/examples/clicks.py $(ARGS)

monitor-example: $(VENV)/.dev java  ## samples of all nodes, windowed by Spark, beside the model: ARGS="--windows 10"
	$(BIN)/python examples/monitor.py $(ARGS)

lint: $(VENV)/.dev  ## ruff, ruff format and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fmt: $(VENV)/.dev  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

proto: $(VENV)/.dev  ## the gRPC stubs from proto/weft.proto
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. weft/proto/weft.proto

facade: $(VENV)/.dev  ## the synchronous client from the asyncio client
	$(BIN)/python -m tools.facade

clean:  ## the environment and caches; .weft (your data) stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
