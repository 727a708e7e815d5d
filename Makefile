# The commands of this project; `make help` lists them.

BUILD ?= build
VENV ?= .venv
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
JOBS ?= $(shell nproc)

.DEFAULT_GOAL := help
.PHONY: help lib run bench workloads peers bench-counts test soak setup-tests \
        check check-asan check-tsan check-aarch64 check-aarch64-cross check-musl check-cli check-bench clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

lib: ## build build/libhakmem.so and build/libhakmem.a alone; needs cmake and a C compiler
	@test -f $(BUILD)/CMakeCache.txt || cmake -S . -B $(BUILD) -DHAKMEM_TESTS=OFF
	cmake --build $(BUILD) -j $(JOBS) --target hakmem hakmem_static hakmem_secure

run: ## set everything up, then show the demo; CMD="..." compares that command instead
	@tools/setup build python
	@$(MAKE) --no-print-directory lib $(VENV)/.installed
	$(VENV)/bin/hakmem $(if $(CMD),run --compare -- $(CMD),demo)

bench: ## set everything up, then run every workload under every allocator and report; ARGS="--brief" passes arguments
	@tools/setup build python bench
	@$(MAKE) --no-print-directory peers workloads $(VENV)/.installed-bench
	$(VENV)/bin/hakmem bench --build $(BUILD) $(ARGS)

workloads: lib # the benchmark's own programs
	cmake -S . -B $(BUILD) -DHAKMEM_BENCH=ON
	cmake --build $(BUILD) -j $(JOBS) --target bench_workloads

test: setup-tests ## set everything up, build, and run every test
	@$(MAKE) --no-print-directory --keep-going check check-asan check-tsan check-aarch64 check-musl check-cli check-bench

soak: setup-tests ## the long tests: hours
	cmake -S . -B $(BUILD) -DHAKMEM_TESTS=ON
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure -C soak -L soak

peers: ## fetch and build the other allocators, for the benchmark: build/peers/manifest.json
	@tools/setup build python
	-@tools/setup peers # without one package the others' peers still come
	bench/peers/make_peers.py --directory $(BUILD)/peers --jobs $(JOBS)

bench-counts: ## count instructions and cache misses for each operation; ARGS=--update pins hakmem's
	@tools/setup build test
	@$(MAKE) --no-print-directory lib
	bench/counts/counts.py --build $(BUILD) $(ARGS)

setup-tests:
	@tools/setup build python test ports programs bench

check: # the C tests
	cmake -S . -B $(BUILD) -DHAKMEM_TESTS=ON
	cmake --build $(BUILD) -j $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS)

# The tests that need no preloading again, with the library and the tests instrumented.
SANITIZED := unit|sanitize
check-asan check-tsan: check-%:
	cmake --preset $*
	cmake --build --preset $* -j $(JOBS)
	ctest --preset $* --no-tests=error -L '$(SANITIZED)' -j $(JOBS)

# The other platforms, as far as they can be had on this one: tests/ports/README.md.
check-aarch64-cross check-musl: check-%:
	cmake --preset $*
	cmake --build --preset $* -j $(JOBS)
	ctest --preset $* --no-tests=error -j $(JOBS)

check-aarch64: check-aarch64-cross # and the unit tests with pages of 64 KiB
	QEMU_PAGESIZE=65536 ctest --preset aarch64-cross --no-tests=error -L unit -j $(JOBS)

check-cli: $(VENV)/.installed-bench # the tests of the command line
	$(VENV)/bin/python -m pytest -q cli/tests

check-bench: workloads $(VENV)/.installed-bench # every workload in its brief size
	rm -rf $(BUILD)/bench/check
	$(VENV)/bin/hakmem bench --build $(BUILD) --output $(BUILD)/bench/check --brief --allocators system,hakmem --check-failures

# The command line and its own copy of the library, installed as a user would.
python_sources := $(shell find cli src include packaging -type f -not -name '*.pyc') \
                  pyproject.toml CMakeLists.txt README.md LICENSE

$(VENV)/.installed: EXTRAS := test
$(VENV)/.installed-bench: EXTRAS := test,bench
$(VENV)/.installed $(VENV)/.installed-bench: $(python_sources)
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check ".[$(EXTRAS)]" || { \
	  echo "hakmem: pip could not install the command line; it needs a package index or a directory of wheels (pip config) for the requirements in pyproject.toml" >&2; \
	  exit 1; }
	@touch $@

clean: ## remove everything that was built
	rm -rf build build-* $(BUILD) $(VENV)
