# make demo: install, and compare the attentions on built-in images.  make test: install, and run the tests.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test slow lint types bench clean

demo: .venv/train.done
	$(BIN)/foveate compare --out demo --resume --jobs 2

test: .venv/dev.done
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal

slow: .venv/dev.done
	$(BIN)/pytest -m slow

lint: .venv/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev.done
	$(BIN)/mypy

bench: .venv/dev.done
	$(BIN)/python benchmarks/cost.py

clean:
	rm -rf .venv demo

.venv/%.done: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable ".[$*]"
	touch $@
