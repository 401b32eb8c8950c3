# `make check` before a commit: what .ci/run checks, without the fresh environments
# and without the slow tests. Uses the active environment (pip install -e ".[test,dev]").

.PHONY: check static test

check: static test

static:
	ruff check .
	ruff format --check .
	pyright
	lint-imports

test:
	python -m pytest -m "not slow" -n 2 --dist worksteal
