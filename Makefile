# The commands of this project; `make help` lists them.

BUILD ?= build
VENV ?= .venv
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
JOBS ?= $(shell nproc)

.DEFAULT_GOAL := help
unexport CDPATH # with it, cd may go elsewhere
.PHONY: help lib amalgamation dist deb recipes run bench workloads peers bench-counts bench-scaling bench-drawn bench-limits man wheel wheels docs \
        test soak repeat fuzz coverage mutation setup-compilers setup-tests built built-asan built-tsan built-aarch64-cross built-musl \
        check check-asan check-tsan check-aarch64 check-aarch64-cross check-musl check-cli check-rust check-packages check-recipes \
        check-docs check-bench check-bench-big setup-big clean

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

lib: ## build only the libraries, shared and static, in build/; needs cmake and a C compiler
	@test -f $(BUILD)/CMakeCache.txt || cmake -S . -B $(BUILD) -DHAKMEM_TESTS=OFF
	cmake --build $(BUILD) -j $(JOBS) --target hakmem hakmem_static hakmem_secure hakmem_secure_static hakmem_launch hakmem_compat

amalgamation: ## generate the library as one source and one header, for programs that compile it in: build/amalgamation
	tools/amalgamate $(BUILD)/amalgamation

# Each file has the commit's time, so that the same commit gives the same bytes.
dist = hakmem-$(shell sed -n 's/^\#define HAK_VERSION_[A-Z]* //p' include/hakmem/hakmem.h | paste -sd.)
dist: ## pack the sources of the last commit, reproducibly: build/hakmem-VERSION.tar.gz
	@mkdir -p $(BUILD)
	git -c "safe.directory=$(CURDIR)" -c tar.umask=0022 archive --format=tar --prefix=$(dist)/ --output="$(abspath $(BUILD))/$(dist).tar" HEAD
	gzip --no-name --force -9 $(BUILD)/$(dist).tar

deb: dist ## build Debian packages of the last commit: build/deb
	@tools/setup build recipes
	packaging/debian/make_deb $(BUILD)/$(dist).tar.gz $(BUILD)/deb

recipes: dist ## fill in the recipes for other package managers: build/recipes; URL=... is where the tarball will be
	rm -rf $(BUILD)/recipes
	packaging/fill $(BUILD)/$(dist).tar.gz $(BUILD)/recipes "$(URL)"

run: ## set everything up, then show the demo; CMD="..." compares that command instead
	@tools/setup build python
	@tools/python $(VENV) $(PYTHON) >/dev/null
	@$(MAKE) --no-print-directory lib
	@cmake --install $(BUILD) --prefix $(BUILD)/installed >/dev/null
	@python=$$(tools/python $(VENV) $(PYTHON)) && "$$python" $(BUILD)/installed/bin/hakmem $(if $(CMD),run --compare -- $(CMD),demo)

bench: ## set up what the run needs, run the workloads under every allocator, and write a report; ARGS="--brief" passes arguments
	@tools/setup build python cxx
	@$(MAKE) --no-print-directory workloads $(VENV)/.installed-bench
	$(VENV)/bin/hakmem bench --build $(BUILD) --set-up $(ARGS)

workloads: lib # the benchmark's own programs
	cmake -S . -B $(BUILD) -DHAKMEM_BENCH=ON
	cmake --build $(BUILD) -j $(JOBS) --target bench_workloads

# Three parts run at a time, as most sometimes wait for a package or an idle process, or keep only one processor busy.  First everything
# is built.  Then the parts are READY and begin in this order, longest first.  If something could not be built, the rest is still tested,
# and the whole fails: the results of an older build must not count for it.
parts := --no-print-directory --keep-going -j 3 --output-sync=target SETUP=yes
test: ## set everything up, build, and run every test
	@status=0; \
	$(MAKE) $(parts) setup-tests built built-asan built-tsan built-aarch64-cross built-musl $(VENV)/.installed-bench || status=$$?; \
	$(MAKE) $(parts) READY=yes check check-cli check-aarch64 check-musl check-tsan check-asan check-rust check-packages check-recipes \
	  check-docs check-bench && exit $$status

soak: setup-tests built ## run the long tests; takes hours
	ctest --test-dir $(BUILD) --output-on-failure -C soak -L soak

repeat: setup-tests built ## run every synthetic workload and stress program a hundred times, idle and busy; ARGS="--help" lists the options
	tests/repeat/run --build $(BUILD) $(ARGS)

fuzz: ## run every fuzz target with libFuzzer for SECONDS=60
	@tools/setup build fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	JOBS=$(JOBS) tests/fuzz/run -t $(or $(SECONDS),60)

coverage: ## count the lines of the library that the tests execute; fails below 95 %
	@tools/setup build python test
	cmake --preset coverage
	cmake --build --preset coverage -j $(JOBS)
	find build-coverage -name '*.gcda' -delete
	ctest --preset coverage --no-tests=error -L '$(COVERED)' -E '$(NOT_COVERED)' -j $(JOBS)
	tools/pinned gcovr -j $(JOBS) --merge-lines $(MISCOUNTED) --root . --filter src/ --exclude-directory '.*/CompilerId.*' \
	  --fail-under-line 95 build-coverage

mutation: ## seed faults into the sources, one at a time, and check that the tests fail; takes an hour; ARGS="--only NAME" for one
	@tools/setup build python test
	tests/mutation/run --work "$(abspath $(BUILD))/mutation" --jobs $(JOBS) $(ARGS)

peers: ## fetch and build the other allocators, for the benchmark: build/peers/manifest.json
	@tools/setup build python
	bench/peers/make_peers.py --directory $(BUILD)/peers --jobs $(JOBS) --set-up

bench-counts: ## count instructions and cache misses for each operation; ARGS=--update records hakmem's as the expected ones
	@tools/setup build test
	@$(MAKE) --no-print-directory lib
	bench/counts/counts.py --build $(BUILD) $(ARGS)

bench-scaling: workloads ## count atomic operations and cache lines that move between threads, with 2 to 128 threads
	cmake --build $(BUILD) -j $(JOBS) --target hakmem_counting
	bench/scaling/scaling.py --build $(BUILD) $(ARGS)

bench-drawn: workloads peers $(VENV)/.installed-bench ## run randomly drawn workloads under every allocator
	$(VENV)/bin/python bench/drawn/drawn.py --build $(BUILD) $(ARGS)

bench-limits: lib ## find the smallest memory limit that programs survive under each allocator; needs root and a memory controller
	bench/limits/limits.py --build $(BUILD) $(ARGS)

man: $(VENV)/.installed-bench ## regenerate the man pages and docs/commands.md from the command line
	$(VENV)/bin/python tools/gen_man

wheel: ## build the wheel for this machine, with a tag that an index accepts: build/wheel; URL=... is the project address it names
	@tools/setup build python
	rm -rf $(BUILD)/wheel
	URL="$(URL)" PYTHON=$(PYTHON) tools/make_wheel "$(abspath $(BUILD))/wheel"

wheels: ## build the wheels for x86-64 and (by cross compiler) aarch64, each for glibc and musl: build/wheels
	@tools/setup build python ports
	rm -rf $(BUILD)/wheels
	for kind in "" aarch64 musl aarch64-musl; do URL="$(URL)" PYTHON=$(PYTHON) tools/make_wheel "$(abspath $(BUILD))/wheels" $$kind || exit 1; done

docs: ## build the documentation as a site, in build/site, and check its links
	@tools/setup python
	@tools/pinned python tools/site/make --output $(BUILD)/site --reporter $(VENV)/bin/python

# The command line's own code makes the reports of the benchmark's kept results.
docs: $(if $(wildcard docs/benchmarks/*.json),$(VENV)/.installed-bench)

setup-compilers:
	@tools/setup build python cxx

setup-tests: setup-compilers # one after the other, as apt requires
	@tools/setup build python test compat ports programs rust bench recipes
	@tools/pinned

# Within `make test`, missing packages are installed while the rest is built. What runs beside check leaves it half the processors.
ifdef SETUP
ifndef READY
built built-asan built-tsan $(VENV)/.installed-bench: | setup-compilers
check check-cli check-rust check-packages check-recipes check-docs check-bench docs built-aarch64-cross built-musl: | setup-tests
endif
built-asan built-tsan built-aarch64-cross built-musl check-asan check-tsan check-aarch64 check-aarch64-cross check-musl check-rust check-recipes: \
  JOBS := $(shell echo $$(($$(nproc) / 2 + $$(nproc) % 2)))
endif

# Programs that a recipe starts have their own number of jobs.
alone := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL

# Runs ctest with the arguments $(2), then lists what was skipped, since ctest does not. $(1): the build folder; $(3): variables.
run_tests = status=0; $(alone) $(3) ctest $(2) --no-tests=error -j $(JOBS) --test-output-size-passed 1000000 \
  --output-junit "$(abspath $(1))/tests.xml" || status=$$?; tests/support/skips "$(abspath $(1))/tests.xml"; exit $$status

built: # the library, the tests and the benchmark's workloads
	$(alone) cmake --preset default -B $(BUILD) -DHAKMEM_BENCH=ON
	$(alone) cmake --build $(BUILD) -j $(JOBS)

check: $(if $(READY),,built) # the C tests
	@$(call run_tests,$(BUILD),--test-dir $(BUILD) --output-on-failure)

# The tests that are counted. One way to bring hakmem in is enough for the API tests, since gcov's files make every process slow. The
# unoptimised library ends another number of attacks than attacks.secure expects, and filters do not permit gcov's own calls.
COVERED := ^unit$$|^api$$|^death$$|^fuzz$$
# Children that are killed, or that share the memory, leave wrong counts.
MISCOUNTED := --gcov-ignore-parse-errors=negative_hits.warn_once_per_file --gcov-ignore-parse-errors=suspicious_hits.warn_once_per_file
NOT_COVERED := ^unit\.oom|^attacks\.|^confined\.|^api\.(preloaded|archive|static|static_pie|secure_[a-z]*|[a-z_]*amalgamated)\.|\.internal\.

# The tests that need no preloading run again, with the library and the tests instrumented.
SANITIZED := unit|sanitize
built-asan built-tsan: built-%:
	$(alone) cmake --preset $*
	$(alone) cmake --build --preset $* -j $(JOBS) --target sanitized

check-asan check-tsan: check-%: $(if $(READY),,built-%)
	@$(call run_tests,build-$*,--preset $* -L '$(SANITIZED)')

# The other platforms, as far as they can be tested on this one: tests/ports/README.md.
built-aarch64-cross built-musl: built-%:
	$(alone) cmake --preset $*
	$(alone) cmake --build --preset $* -j $(JOBS)

check-aarch64-cross check-musl: check-%: $(if $(READY),,built-%)
	@$(call run_tests,build-$*,--preset $*)

check-aarch64: check-aarch64-cross # and the unit tests with pages of 64 KiB
	@$(call run_tests,build-aarch64-cross,--preset aarch64-cross -L unit,QEMU_PAGESIZE=65536)

check-cli: $(VENV)/.installed-bench # the tests of the command line
	$(alone) $(VENV)/bin/python -m pytest -q -rs cli/tests

check-rust: # the crates' tests; outside `make test` it installs its own packages
	@$(if $(SETUP),,tools/setup rust)
	$(alone) CARGO_TARGET_DIR="$(abspath $(BUILD))/rust" bindings/rust/check -j $(JOBS)

check-recipes: # the tarball, Debian's packages and the recipes under packaging/, built and used
	@tools/setup build python test ports recipes
	@$(alone) $(MAKE) --no-print-directory deb recipes
	packaging/tests/check_recipes $(BUILD)

check-packages: # the wheels, and `make run` without an index
	$(alone) $(MAKE) --no-print-directory wheels URL=https://hakmem.example
	for wheel in $(BUILD)/wheels/*.whl; do packaging/tests/check_wheel "$$wheel" .venv/tools/bin || exit 1; done
	rm -rf $(BUILD)/no-index
	$(alone) PIP_NO_INDEX=1 $(MAKE) --no-print-directory run VENV=$(BUILD)/no-index CMD=true JOBS=$(JOBS)

check-docs: docs # also checks that each of the site's checks finds what it is for
	tools/pinned python tools/site/selftest

# Every workload in its brief size. Those whose packages take minutes to install have a separate target, which no other target runs.
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

# The installed programs contain the tree's path, so they are installed again if the tree was moved.
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
