# `make demo` and `make test` are enough on a fresh machine: each makes .venv and installs what it needs.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-extras test-lowest docs lint format clean

.venv/.installed: pyproject.toml lab/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --no-deps --editable lab
	touch $@

demo: .venv/.installed  ## Learn the call graph of Python's standard library, compare, draw
	$(BIN)/graphstrap demo

test: .venv/.installed lint  ## Lint, types and every test that needs no GPU
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not gpu and not extras"

.venv/.extras: .venv/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[all]"
	touch $@

test-extras: .venv/.extras  ## Tests of the optional packages (Ray, METIS, faiss, ...), which it installs; none is skipped
	$(BIN)/python -m pytest -n 2 --dist worksteal -m extras

.venv/.docs: .venv/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[docs]"
	touch $@

docs: .venv/.docs  ## The documentation as a site in site/, built strictly
	$(BIN)/python docs/build.py site

lint: .venv/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/.installed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

test-lowest:  ## The tests again on the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt torch setuptools
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt --no-build-isolation --editable ".[dev]"
	.venv-lowest/bin/python -m pip install --quiet --constraint constraints-lowest.txt --no-build-isolation --no-deps --editable lab
	.venv-lowest/bin/python -m pytest -n 2 --dist worksteal -m "not gpu and not extras"

clean:
	rm -rf site .venv .venv-lowest .pytest_cache .mypy_cache .ruff_cache .hypothesis
