# Everything runs from a virtual environment in .venv with locked, hashed dependencies.
# The Python that the image ships, if this machine has it: tests should run on what ships.
SHIPPED := $(shell sed -n 's/^ARG PYTHON_IMAGE=python:\([0-9.]*\)-.*/python\1/p' deploy/Dockerfile)
PYTHON ?= $(or $(shell $(SHIPPED) -c 'import sys; print(sys.executable)' 2>/dev/null),python3)
BIN := .venv/bin
SEEDS ?= 200
DIST ?= dist
# Twice as many as processors: every second end-to-end test waits for a clock.
WORKERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# What takes longest begins first, and small files fill the end (tests/conftest.py: in turns).
FAST := tests/sim tests/property tests/golden tests/recorded tests/strict tests/unit
ALL := tests/e2e tests/contract tests/apiserver tests/bench $(FAST)
STAMP := .venv/.installed

# Else each of the hundreds of services that tests start would compile all of the product anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install helm demo check test test-fast test-apiserver test-strict compat sim mutants golden recorded schema bench lock wheel chart release-tag clean

install: $(STAMP)

$(STAMP): requirements-dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "allotment needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

helm: $(STAMP)        ## build helm, which the tests of the chart run (needs Go)
	GOBIN=$(abspath $(BIN)) go install helm.sh/helm/v3/cmd/helm@v3.22.0

demo: $(STAMP)        ## the examples in local mode, checked: make demo ARGS=--keep leaves it running
	$(BIN)/allot demo $(ARGS)

test: $(STAMP)        ## every test tier that needs no cluster, on all processors
	$(PYTEST) $(ALL)

test-fast: $(STAMP)   ## unit, property, golden and simulation only
	$(PYTEST) $(FAST)

test-apiserver: $(STAMP) ## local mode's API server and a real one: make test-apiserver KUBEBUILDER_ASSETS=DIR (or KUBECONFIG_UNDER_TEST=FILE)
	KUBEBUILDER_ASSETS="$(KUBEBUILDER_ASSETS)" KUBECONFIG_UNDER_TEST="$(KUBECONFIG_UNDER_TEST)" $(BIN)/python -m pytest -rs tests/apiserver

test-strict: $(STAMP) ## determinism: other hash seeds and Pythons: make test-strict WORLDS=200 ARGS="--python /path/to/python"
	$(BIN)/python -m pytest tests/strict
	$(BIN)/python -m tests.strict --worlds $(or $(WORLDS),20) $(ARGS)

compat: $(STAMP)      ## ask what Volcano was asked: make compat VECTORS=FILE ARGS="-o json"
	@test -n "$(VECTORS)" || { echo "make compat needs VECTORS=FILE, a file of Volcano's recorded answers" >&2; exit 2; }
	@$(BIN)/python -m tests.compat "$(VECTORS)" $(ARGS)

check: $(STAMP)       ## style, types, import rules, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m allotment_proto.schema --check

sim: $(STAMP)         ## seeded simulation: make sim SEEDS=2000
	$(BIN)/python -m tests.sim.run --seeds $(SEEDS)

mutants: $(STAMP)     ## a test of the tests: planted bugs must be caught
	$(BIN)/python -m tests.sim.mutants --seeds $(SEEDS)

golden: $(STAMP)      ## rewrite the golden transcripts; then read the diff
	$(BIN)/python -m pytest tests/golden --rewrite

recorded: $(STAMP)    ## record logs of new scenes into tests/recorded; those that are there stay
	$(BIN)/python -m tests.recorded

schema: $(STAMP)      ## regenerate JSON Schema and AsyncAPI; then read the diff
	$(BIN)/python -m allotment_proto.schema --write

bench: $(STAMP)
	$(BIN)/python -m pytest tests/bench -o addopts=--import-mode=importlib --benchmark-only

lock:                 ## resolve the dependencies anew (needs uv)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --extra fast pyproject.toml -o requirements.lock
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock

wheel: $(STAMP)       ## dist/allotment-VERSION-py3-none-any.whl
	$(BIN)/python -m hatchling build -t wheel -d $(DIST)

chart: $(STAMP)       ## the chart, packed for an image: make chart IMAGE=ghcr.io/me/allotment DIGEST=sha256:…
	@test -n "$(IMAGE)" && test -n "$(DIGEST)" || { echo "make chart needs IMAGE=REPOSITORY DIGEST=sha256:…" >&2; exit 2; }
	rm -rf $(DIST)/chart && mkdir -p $(DIST) && cp -rL deploy/chart $(DIST)/chart
	sed -i 's|^  repository: allotment$$|  repository: $(IMAGE)|; s|^  digest: ""$$|  digest: "$(DIGEST)"|' $(DIST)/chart/values.yaml
	$(BIN)/helm package $(DIST)/chart --destination $(DIST)

release-tag:          ## fail unless $$TAG is v and the version of the project, dated in the changelog
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); \
	test "$$TAG" = "v$$version" || { echo "the tag is $$TAG, but pyproject.toml has the version $$version" >&2; exit 1; }; \
	grep -qE "^## \[$$version\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$$" CHANGELOG.md || \
	  { echo "CHANGELOG.md needs the line: ## [$$version] - YYYY-MM-DD" >&2; exit 1; }

clean:
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
