# The commands of this project; `make help` lists them.

BUILD ?= build
VENV ?= .venv
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
JOBS ?= $(shell nproc)

.DEFAULT_GOAL := help
unexport CDPATH # by which cd goes elsewhere
.PHONY: help lib amalgamation dist deb recipes run bench workloads peers bench-counts bench-scaling bench-drawn bench-limits man wheel wheels docs \
        test soak repeat fuzz coverage mutation setup-compilers setup-tests built built-asan built-tsan built-aarch64-cross built-musl \
        check check-asan check-tsan check-aarch64 check-aarch64-cross check-musl check-cli check-rust check-packages check-recipes \
        check-docs check-bench check-bench-big setup-big clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

lib: ## build the libraries alone, shared and static, in build/; needs cmake and a C compiler
	@test -f $(BUILD)/CMakeCache.txt || cmake -S . -B $(BUILD) -DHAKMEM_TESTS=OFF
	cmake --build $(BUILD) -j $(JOBS) --target hakmem hakmem_static hakmem_secure hakmem_secure_static hakmem_launch hakmem_compat

amalgamation: ## write the library as one source and one header, for programs that compile it in: build/amalgamation
	tools/amalgamate $(BUILD)/amalgamation

# The time of each file is the commit's, so that the same commit gives the same bytes.
dist = hakmem-$(shell sed -n 's/^\#define HAK_VERSION_[A-Z]* //p' include/hakmem/hakmem.h | paste -sd.)
dist: ## pack the sources of the last commit: build/hakmem-VERSION.tar.gz, the same bytes each time
	@mkdir -p $(BUILD)
	git -c "safe.directory=$(CURDIR)" -c tar.umask=0022 archive --format=tar --prefix=$(dist)/ --output="$(abspath $(BUILD))/$(dist).tar" HEAD
	gzip --no-name --force -9 $(BUILD)/$(dist).tar

deb: dist ## build Debian's packages of the last commit: build/deb
	@tools/setup build recipes
	packaging/debian/make_deb $(BUILD)/$(dist).tar.gz $(BUILD)/deb

recipes: dist ## fill in the recipes of other package managers: build/recipes; URL=... is where the tarball will be
	rm -rf $(BUILD)/recipes
	packaging/fill $(BUILD)/$(dist).tar.gz $(BUILD)/recipes "$(URL)"

run: ## set everything up, then show the demo; CMD="..." compares that command instead
	@tools/setup build python
	@tools/python $(VENV) $(PYTHON) >/dev/null
	@$(MAKE) --no-print-directory lib
	@cmake --install $(BUILD) --prefix $(BUILD)/installed >/dev/null
	@python=$$(tools/python $(VENV) $(PYTHON)) && "$$python" $(BUILD)/installed/bin/hakmem $(if $(CMD),run --compare -- $(CMD),demo)

bench: ## set up what the run asks for, then run the workloads under every allocator and report; ARGS="--brief" passes arguments
	@tools/setup build python cxx
	@$(MAKE) --no-print-directory workloads $(VENV)/.installed-bench
	$(VENV)/bin/hakmem bench --build $(BUILD) --set-up $(ARGS)

workloads: lib # the benchmark's own programs
	cmake -S . -B $(BUILD) -DHAKMEM_BENCH=ON
	cmake --build $(BUILD) -j $(JOBS) --target bench_workloads

# Three parts at a time: most wait now and then, for a package or an idle process, or keep one processor busy.  First all is built: then
# the parts are READY when they are asked for, and begin in this order, the longest first. Where something could not be built the others are
# tested all the same, and it has failed: what an older build left must not pass for it.
parts := --no-print-directory --keep-going -j 3 --output-sync=target SETUP=yes
test: ## set everything up, build, and run every test
	@status=0; \
	$(MAKE) $(parts) setup-tests built built-asan built-tsan built-aarch64-cross built-musl $(VENV)/.installed-bench || status=$$?; \
	$(MAKE) $(parts) READY=yes check check-cli check-aarch64 check-musl check-tsan check-asan check-rust check-packages check-recipes \
	  check-docs check-bench && exit $$status

soak: setup-tests built ## the long tests: hours
	ctest --test-dir $(BUILD) --output-on-failure -C soak -L soak

repeat: setup-tests built ## run every synthetic workload and stress program a hundred times, idle and busy; ARGS="--help" lists the choices
	tests/repeat/run --build $(BUILD) $(ARGS)

fuzz: ## run every fuzz target with libFuzzer for SECONDS=60
	@tools/setup build fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	JOBS=$(JOBS) tests/fuzz/run -t $(or $(SECONDS),60)

coverage: ## count the lines of the library that the tests run; under 95 % of them is a failure
	@tools/setup build python test
	cmake --preset coverage
	cmake --build --preset coverage -j $(JOBS)
	find build-coverage -name '*.gcda' -delete
	ctest --preset coverage --no-tests=error -L '$(COVERED)' -E '$(NOT_COVERED)' -j $(JOBS)
	tools/pinned gcovr -j $(JOBS) --merge-lines $(MISCOUNTED) --root . --filter src/ --exclude-directory '.*/CompilerId.*' \
	  --fail-under-line 95 build-coverage

mutation: ## seed faults into the sources, one after the other, and see the tests fail: an hour; ARGS="--only NAME" for one
	@tools/setup build python test
	tests/mutation/run --work "$(abspath $(BUILD))/mutation" --jobs $(JOBS) $(ARGS)

peers: ## fetch and build the other allocators, for the benchmark: build/peers/manifest.json
	@tools/setup build python
	bench/peers/make_peers.py --directory $(BUILD)/peers --jobs $(JOBS) --set-up

bench-counts: ## count instructions and cache misses for each operation; ARGS=--update pins hakmem's
	@tools/setup build test
	@$(MAKE) --no-print-directory lib
	bench/counts/counts.py --build $(BUILD) $(ARGS)

bench-scaling: workloads ## count atomic operations and lines that threads take from each other, with 2 to 128 threads
	cmake --build $(BUILD) -j $(JOBS) --target hakmem_counting
	bench/scaling/scaling.py --build $(BUILD) $(ARGS)

bench-drawn: workloads peers $(VENV)/.installed-bench ## workloads drawn at random, under every allocator
	$(VENV)/bin/python bench/drawn/drawn.py --build $(BUILD) $(ARGS)

bench-limits: lib ## find the smallest memory limit that programs survive under each allocator; needs root and a memory controller
	bench/limits/limits.py --build $(BUILD) $(ARGS)

man: $(VENV)/.installed-bench ## write the man pages and docs/commands.md anew from the command line
	$(VENV)/bin/python tools/gen_man

wheel: ## build the wheel for this machine, with the tag that an index takes: build/wheel; URL=... is the project's place, which it names
	@tools/setup build python
	rm -rf $(BUILD)/wheel
	URL="$(URL)" PYTHON=$(PYTHON) tools/make_wheel "$(abspath $(BUILD))/wheel"

wheels: ## build the wheels for x86-64 and, by the cross compiler, aarch64, for glibc and musl each: build/wheels
	@tools/setup build python ports
	rm -rf $(BUILD)/wheels
	for kind in "" aarch64 musl aarch64-musl; do URL="$(URL)" PYTHON=$(PYTHON) tools/make_wheel "$(abspath $(BUILD))/wheels" $$kind || exit 1; done

docs: ## build the documentation as a site, in build/site, and check its links
	@tools/setup python
	@tools/pinned python tools/site/make --output $(BUILD)/site --reporter $(VENV)/bin/python

# The benchmark's results that are kept get their reports from the command line's own code.
docs: $(if $(wildcard docs/benchmarks/*.json),$(VENV)/.installed-bench)

setup-compilers:
	@tools/setup build python cxx

setup-tests: setup-compilers # one after the other, as apt wants
	@tools/setup build python test compat ports programs rust bench recipes
	@tools/pinned

# Within `make test`, what is missing is installed while what can be built is. What runs beside check leaves it half the processors.
ifdef SETUP
ifndef READY
built built-asan built-tsan $(VENV)/.installed-bench: | setup-compilers
check check-cli check-rust check-packages check-recipes check-docs check-bench docs built-aarch64-cross built-musl: | setup-tests
endif
built-asan built-tsan built-aarch64-cross built-musl check-asan check-tsan check-aarch64 check-aarch64-cross check-musl check-rust check-recipes: \
  JOBS := $(shell echo $$(($$(nproc) / 2 + $$(nproc) % 2)))
endif

# What a recipe starts has a number of jobs of its own.
alone := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL

# ctest with these arguments; then what was skipped, of which ctest prints nothing. $(1): the folder that it runs in; $(3): variables.
run_tests = status=0; $(alone) $(3) ctest $(2) --no-tests=error -j $(JOBS) --test-output-size-passed 1000000 \
  --output-junit "$(abspath $(1))/tests.xml" || status=$$?; tests/support/skips "$(abspath $(1))/tests.xml"; exit $$status

built: # the library, the tests and the benchmark's workloads
	$(alone) cmake --preset default -B $(BUILD) -DHAKMEM_BENCH=ON
	$(alone) cmake --build $(BUILD) -j $(JOBS)

check: $(if $(READY),,built) # the C tests
	@$(call run_tests,$(BUILD),--test-dir $(BUILD) --output-on-failure)

# What is counted. Of the API tests one way in shows what all do: counters in files make every process slow.
# How many attacks the unoptimised library ends is not what attacks.secure expects, and gcov's own calls not what filters let pass.
COVERED := ^unit$$|^api$$|^death$$|^fuzz$$
# Children that are killed, or share the memory, leave counts that gcov has wrong.
MISCOUNTED := --gcov-ignore-parse-errors=negative_hits.warn_once_per_file --gcov-ignore-parse-errors=suspicious_hits.warn_once_per_file
NOT_COVERED := ^unit\.oom|^attacks\.|^confined\.|^api\.(preloaded|archive|static|static_pie|secure_[a-z]*|[a-z_]*amalgamated)\.|\.internal\.

# The tests that need no preloading again, with the library and the tests instrumented.
SANITIZED := unit|sanitize
built-asan built-tsan: built-%:
	$(alone) cmake --preset $*
	$(alone) cmake --build --preset $* -j $(JOBS) --target sanitized

check-asan check-tsan: check-%: $(if $(READY),,built-%)
	@$(call run_tests,build-$*,--preset $* -L '$(SANITIZED)')

# The other platforms, as far as they can be had on this one: tests/ports/README.md.
built-aarch64-cross built-musl: built-%:
	$(alone) cmake --preset $*
	$(alone) cmake --build --preset $* -j $(JOBS)

check-aarch64-cross check-musl: check-%: $(if $(READY),,built-%)
	@$(call run_tests,build-$*,--preset $*)

check-aarch64: check-aarch64-cross # and the unit tests with pages of 64 KiB
	@$(call run_tests,build-aarch64-cross,--preset aarch64-cross -L unit,QEMU_PAGESIZE=65536)

check-cli: $(VENV)/.installed-bench # the tests of the command line
	$(alone) $(VENV)/bin/python -m pytest -q -rs cli/tests

check-rust: # the crates' tests; outside of `make test` it sees to its own packages
	@$(if $(SETUP),,tools/setup rust)
	$(alone) CARGO_TARGET_DIR="$(abspath $(BUILD))/rust" bindings/rust/check -j $(JOBS)

check-recipes: # the tarball, Debian's packages and the recipes under packaging/, built and used
	@tools/setup build python test ports recipes
	@$(alone) $(MAKE) --no-print-directory deb recipes
	packaging/tests/check_recipes $(BUILD)

check-packages: # the wheels, and `make run` where there is no index
	$(alone) $(MAKE) --no-print-directory wheels URL=https://hakmem.example
	for wheel in $(BUILD)/wheels/*.whl; do packaging/tests/check_wheel "$$wheel" .venv/tools/bin || exit 1; done
	rm -rf $(BUILD)/no-index
	$(alone) PIP_NO_INDEX=1 $(MAKE) --no-print-directory run VENV=$(BUILD)/no-index CMD=true JOBS=$(JOBS)

check-docs: docs # and that each of the site's checks finds what it is for
	tools/pinned python tools/site/selftest

# Every workload in its brief size. Those whose packages take minutes to install are a target of their own, which no other runs.
check-bench check-bench-big: $(if $(READY),,built) $(VENV)/.installed-bench
	rm -rf $(BUILD)/bench/$@
	$(alone) $(VENV)/bin/hakmem bench --build $(BUILD) --output $(BUILD)/bench/$@ --brief $(CHECKED) \
	  --allocators system,hakmem --check-failures
	$(alone) $(VENV)/bin/python bench/drawn/drawn.py --build $(BUILD) --check
check-bench: CHECKED := --workloads "*" --without bench-big
check-bench-big: CHECKED := --workloads bench-big
check-bench-big: setup-big
setup-big:
	@tools/setup build python cxx bench bench-big

# The command line and its own copy of the library, installed as a user would.
python_sources := $(shell find cli src include packaging -type f -not -name '*.pyc') \
                  pyproject.toml CMakeLists.txt README.md LICENSE

# It names its own place in all that it runs: in a tree that was moved it is made anew.
$(shell grep -qsxF "$(CURDIR)" $(VENV)/.installed-bench || rm -f $(VENV)/.installed-bench)

$(VENV)/.installed-bench: EXTRAS := test,bench
$(VENV)/.installed-bench: $(python_sources)
	@$(VENV)/bin/pip --version >/dev/null 2>&1 || { rm -rf $(VENV)/bin $(VENV)/lib && $(PYTHON) -m venv $(VENV); }
	@$(alone) $(VENV)/bin/pip install --quiet --disable-pip-version-check ".[$(EXTRAS)]" || { \
	  echo "hakmem: pip could not install the command line; it needs a package index or a directory of wheels (pip config) for the requirements in pyproject.toml" >&2; \
	  exit 1; }
	@echo "$(CURDIR)" >$@

clean: ## remove everything that was built
	rm -rf build build-* $(BUILD) $(VENV) bindings/rust/target bindings/rust/bench/target
