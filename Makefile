# The few verbs people type. They use the environment that is active; only `ci`, `oldest`
# and `vllm` make their own.

.PHONY: help check static test tests thorough lint types imports web web-check docs fix bench pins ci oldest vllm

help:
	@echo "make check    lint, types, imports and all tests: what CI checks, in this environment"
	@echo "make test     the fast tests; of one folder or file with TESTS=patterns"
	@echo "make thorough all tests, those that run by night included, and laws with many examples"
	@echo "make web      build the page, the map and the report from web/ into the package"
	@echo "make docs     build the site of the docs into site/"
	@echo "make fix      format, and repair what ruff can repair"
	@echo "make bench    run the benchmarks"
	@echo "make pins     write down the versions of this environment for CI"
	@echo "make ci       check from nothing, in new environments, as CI does"
	@echo "make oldest   the fast tests with the oldest versions that pyproject.toml admits"
	@echo "make vllm     the tests of watch on a vLLM engine, in a new environment"

# The tests build the site of the docs too.
check: static tests

static: lint types imports web-check

lint:
	@.ci/step "ruff check" python -m ruff check .
	@.ci/step "ruff format" python -m ruff format --check .
	@.ci/step "changelog" .ci/notes
	@.ci/step "faults" sh -c ".ci/faults --list >/dev/null"

types:
	@.ci/step "pyright" python -m pyright

imports:
	@.ci/step "lint-imports" lint-imports --no-logo

# What installing the package does too.
web:
	@cd web && npm ci --no-audit --no-fund && npm run build
	@mkdir -p src/regard/views/page/assets src/regard/server/assets src/regard/atlas/assets src/regard/attribution/assets
	@cp web/dist/page.js web/dist/page.css src/regard/views/page/assets/
	@cp web/dist/atlas.js web/dist/atlas.css src/regard/atlas/assets/
	@cp web/dist/attribution.js web/dist/attribution.css src/regard/attribution/assets/
	@cp web/dist/map.js web/dist/map.css web/dist/engine.js src/regard/server/assets/
	@cp web/dist/map.js.gz web/dist/map.css.gz web/dist/engine.js.gz src/regard/server/assets/
	@cp web/dist/map.html src/regard/server/assets/index.html

web-check:
	@.ci/step "web: types, lint and tests" npm --prefix web run --silent check

# Whatever it warns of is an error; what Material says of its own future is not about this site.
docs:
	@NO_MKDOCS_2_WARNING=1 .ci/step "docs" python -m mkdocs build --strict

# A worker without tests takes half of those that another has left. One thread each: where others
# compute too, threads wait for each other.
PYTEST = OMP_NUM_THREADS=1 .ci/step "$@" python -m pytest -q -n auto --dist worksteal \
	--junitxml build/$@.xml $(addprefix tests/,$(TESTS))

test:
	@$(PYTEST) -m "not slow and not thorough and not processes"

tests:
	@$(PYTEST) -m "not thorough"
	@.ci/durations build/$@.xml

thorough:
	@HYPOTHESIS_PROFILE=thorough $(PYTEST)
	@.ci/durations build/$@.xml

fix:
	npm --prefix web run fix
	python -m ruff check --fix .
	python -m ruff format .

bench:
	python -m benchmarks

# Not torch: its number names no build.
pins:
	@head -n 3 .ci/constraints.txt > .ci/pins && python -m pip freeze --exclude-editable --exclude torch >> .ci/pins
	@mv .ci/pins .ci/constraints.txt

ci:
	@.ci/run

oldest:
	@.ci/oldest

vllm:
	@.ci/vllm
