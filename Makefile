# farcall: `make demo` shows it at work, `make test` checks it. Both install everything that they need in .venv.
PYTHON ?= python3
FUZZ_SECONDS ?= 300
GRAPHS ?= 100000
BIN := .venv/bin
NATIVE := $(shell find native include/farcall -name "*.[ch]*") CMakeLists.txt pyproject.toml scripts/setup.sh

.PHONY: demo demo-devices test lint unit long coverage soak fuzz fuzz-graphs docs linkcheck guarantees bench sanitize wheels devices-wheel clean help

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: .venv/.run ## build a real model from ONNX to one artifact; run it here, in a server, on an emulated device
	$(BIN)/farcall demo $(DEMO_FLAGS)

demo-devices: .venv/.run ## run it on aarch64, armv7, riscv64, s390x, and Hexagon behind aarch64, all emulated (minutes)
	$(BIN)/farcall demo --devices $(DEMO_FLAGS)

test: lint unit ## run lint and unit

lint: .venv/.test ## run ruff, mypy --strict, pyright, stubtest, import contracts, spelling, clang-format, clang-tidy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/consumer.py
	$(BIN)/basedpyright --project tests/typing --pythonpath $(BIN)/python
	$(BIN)/python -m mypy.stubtest farcall._core --ignore-disjoint-bases --allowlist tests/stubtest_allowlist.txt
	$(BIN)/lint-imports
	git ls-files | xargs $(BIN)/codespell
	git ls-files native include src | grep -E '\.(c|h|hpp|cpp)$$' | xargs $(BIN)/clang-format --dry-run -Werror
	PYTHON=$(BIN)/python sh scripts/tidy.sh

unit: .venv/.test ## run the tests on all processors
	$(BIN)/python -m pytest -n auto --dist loadfile $(PYTEST_FLAGS)

long: .venv/.test ## run the tests that take a minute each: builds for other machines, and their emulators
	$(BIN)/python -m pytest -n auto --dist loadfile -m "long and not slow" $(PYTEST_FLAGS)

coverage: .venv/.test ## run the tests of `make unit` with branch coverage, which doubles their time
	$(BIN)/python -m pytest -n auto --dist loadfile --cov --cov-report=term:skip-covered $(PYTEST_FLAGS)

soak: .venv/.test ## run the slow tests (minutes): a million calls of each kind
	$(BIN)/python -m pytest -m slow $(PYTEST_FLAGS)

fuzz: .venv/.test ## fuzz every parser, for FUZZ_SECONDS (300) each
	$(BIN)/python -m pip install -q --group fuzz
	for target in tests/fuzz/fuzz_*.py; do \
		$(BIN)/python -m tests.fuzz.$$(basename $$target .py) -max_total_time=$(FUZZ_SECONDS) tests/fuzz/corpus/$$(basename $$target .py) || exit 1; \
	done

fuzz-graphs: .venv/.test ## compare GRAPHS (100000) random graphs with onnxruntime, from where the last run ended
	$(BIN)/python -m tests.random_graphs --graphs $(GRAPHS) --jobs $$(nproc) $(FUZZ_FLAGS)

docs: .venv/.test ## build the site in build/docs; warnings are errors
	$(BIN)/python -m sphinx -q -b html -W --keep-going docs build/docs

linkcheck: .venv/.test ## visit every outside link of the site
	$(BIN)/python -m sphinx -q -b linkcheck -W --keep-going docs build/linkcheck

guarantees: .venv/.test ## measure the guarantees, and write docs/guarantees.md
	$(BIN)/python -m tests.abuse.guarantees

bench: .venv/.test ## measure farcall and its pinned rivals side by side
	$(BIN)/python -m bench $(BENCH_FLAGS)

sanitize: .venv/.test ## run tests of the native core and of kernels under AddressSanitizer and UndefinedBehaviorSanitizer
	PYTHON=$(BIN)/python sh scripts/sanitize.sh

wheels: .venv/.test ## make the wheels of all Pythons that are here, and the source distribution, in dist/
	$(BIN)/python -m pip install -q --group wheels
	$(BIN)/python scripts/wheels.py $(WHEELS_FLAGS)

devices-wheel: .venv/.test ## make the wheel farcall-devices, with farcall-server for every machine, in dist/
	$(BIN)/python scripts/devices.py $(DEVICES_FLAGS)

clean: ## remove everything that was built
	rm -rf .venv build dist

.venv/.run: $(NATIVE)
	PYTHON="$(PYTHON)" sh scripts/setup.sh run

.venv/.test: $(NATIVE)
	PYTHON="$(PYTHON)" sh scripts/setup.sh test
