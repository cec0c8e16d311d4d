# make help says what can be made.

TARGET  := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Tests run a debug build, with its assertions; the demo, the benches and what is installed are release builds.
PROFILE := dev
TEST_BIN := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/stripewise
BIN     := $(TARGET)/release/stripewise
PRELOAD := $(TARGET)/release/libstripewise_preload.so
# Other features than the rest: a folder of its own keeps cargo from building either anew.
DEMO_TARGET := $(TARGET)/demo
DEMO_BIN := $(DEMO_TARGET)/demo/stripewise
PREFIX  := /usr/local
DESTDIR :=
PYTHON  := python3
export PATH := $(PATH):$(HOME)/.cargo/bin
export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help setup engines build build-demo demo check test test-cargo test-programs torture fuzz bench bench-devices bench-hosts install clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

setup: ## install the packages that are missing (or name them)
	@setup/install

# Tests that need an engine or hosts say that they are skipped where these cannot be had.
engines: ## install Ceph, etcd and what a network of namespaces needs for the tests on them, where this user may
	@setup/install --engines || echo "== tests on storage engines and on several hosts will be skipped: see above"

# One after the other: built together, the library would link what the command's features add to the crates that both use.
build: setup ## the command and the preload library, release build
	cargo build --release --package stripewise-preload
	cargo build --release --package stripewise-cli

build-demo: setup ## what the demo runs: a build of its own, without Arrow and Parquet
	cargo build --profile demo --package stripewise-cli --package stripewise-preload --no-default-features --target-dir $(DEMO_TARGET)

demo: build-demo ## the main job on an emulated testbed; leaves demo-out/report.html and demo-out/results.json
	$(DEMO_BIN) demo

check: ## format, lints, dependencies, documentation; names the tools that are missing
	@setup/check

test: ## everything: make check, builds, unit and integration tests, real programs under redirection
	@start=$$(date +%s); \
	for stage in setup engines check test-cargo test-programs; do \
	    echo "== $$stage"; \
	    $(MAKE) --no-print-directory $$stage || { echo "== $$stage failed: make test stops here"; exit 1; }; \
	done; \
	echo "== all tests passed in $$(($$(date +%s) - start)) s"

# The library is built first: a test of the command preloads it, and cargo test alone does not leave a cdylib behind.
test-cargo: ## Rust tests of all crates
	cargo build --profile $(PROFILE) --workspace
	STRIPEWISE_LIBRARY_IS_BUILT=1 cargo test --profile $(if $(filter dev,$(PROFILE)),test,$(PROFILE)) --workspace

test-programs: ## C, Fortran, Python, HDF5 and shell programs, bare against redirected
	$(PYTHON) tests/programs/test_run.py
	STRIPEWISE=$(TEST_BIN) /usr/bin/python3 tests/engines/test_on_ceph.py
	STRIPEWISE=$(TEST_BIN) /usr/bin/python3 tests/engines/test_ceph_faults.py
	STRIPEWISE=$(TEST_BIN) $(PYTHON) tests/engines/test_on_orangefs.py
	$(PYTHON) tests/hosts/test_bed.py
	STRIPEWISE=$(TEST_BIN) $(PYTHON) -W ignore tests/hosts/test_sharing.py
	STRIPEWISE=$(TEST_BIN) $(PYTHON) -W ignore tests/hosts/test_on_rados.py
	STRIPEWISE=$(TEST_BIN) $(PYTHON) -W ignore tests/hosts/test_mpi.py
	STRIPEWISE=$(TEST_BIN) $(PYTHON) -W ignore tests/hosts/test_moving.py
	STRIPEWISE=$(TEST_BIN) $(PYTHON) -W ignore tests/hosts/test_silent.py
	STRIPEWISE=$(TEST_BIN) $(PYTHON) tests/programs/run.py --strict
	STRIPEWISE=$(TEST_BIN) $(PYTHON) tests/programs/run.py --strict --on ext4,xfs

# Each test prints its seed; STRIPED_SEED repeats it.
torture: export STRIPED_KILLS := 500
torture: export STRIPED_MOVE_PROCESSES := 64
torture: export STRIPED_MOVES := 60
torture: export STRIPED_SYNCS := 200
torture: export STRIPED_SCHEDULES := 60000
torture: export STRIPED_POWER_LOSSES := 2000
torture: export STRIPED_EVERY_CALL := 1
torture: export STRIPED_DAMAGES := 300
torture: export STRIPED_TABLE_DAMAGES := 1000
torture: export STRIPED_NAME_KILLS := 0
torture: export STRIPED_NAME_PAIRS := 0
torture: ## the long form of the tests in which processes, brokers, servers and the power fail
	cargo test --package stripewise-store --lib interleavings -- --nocapture
	cargo test --package stripewise-broker --test striped moves -- --nocapture --test-threads 1
	cargo test --package stripewise-broker --test striped replicas -- --nocapture --test-threads 1
	cargo test --package stripewise-broker --test striped killed::whoever -- --nocapture --test-threads 1
	STRIPED_KILLS=6000 cargo test --package stripewise-broker --test striped servers_failing -- --nocapture --test-threads 1
	cargo test --package stripewise-broker --lib audit -- --nocapture
	cargo test --package stripewise-broker --test striped damaged -- --nocapture --test-threads 1
	cargo test --package stripewise-broker --test striped power_lost -- --nocapture --test-threads 1
	cargo test --package stripewise-broker --test striped every_call -- --nocapture --test-threads 1
	cargo test --package stripewise-cli --test names -- --nocapture --test-threads 1

# Inputs that are found stay in fuzz/corpus; failures in fuzz/artifacts. The functions are those of crates/fuzz.
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_SECONDS := 60
fuzz: ## cargo-fuzz over every target, each for FUZZ_SECONDS (60); needs nightly and cargo-fuzz
	@for tool in "cargo +nightly --version" "cargo fuzz --version"; do \
	    $$tool > /dev/null 2>&1 || { echo "make fuzz: '$$tool' fails: nothing was fuzzed (rustup toolchain install nightly; cargo install cargo-fuzz)"; exit 0; }; \
	done; \
	for target in $(FUZZ_TARGETS); do \
	    mkdir -p fuzz/corpus/$$target; \
	    cargo +nightly fuzz run $$target fuzz/corpus/$$target crates/fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=65536 || exit 1; \
	done

bench: build ## once built, at most 5 minutes; prints a table and leaves bench-out/bench.json
	cargo bench --quiet --no-run --package stripewise-planner --package stripewise-trace --package stripewise-sim --package stripewise-broker
	$(PYTHON) bench/run.py --stripewise $(BIN)

# DEVICES=--quick is a short form of it; see bench/devices/run.py.
DEVICES :=
bench-devices: build ## the proof on disks that seek: loop devices over FUSE, as root, 25 minutes; leaves bench-out/devices.json
	$(PYTHON) bench/devices/run.py --stripewise $(BIN) $(DEVICES)

bench-hosts: build ## pools of a real Ceph beside plain librados, 2 minutes; leaves bench-out/hosts.json
	/usr/bin/python3 bench/hosts/on_rados.py --stripewise $(BIN)

install: build ## the command, the library, manual pages and completions under PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib/stripewise
	install -m 755 $(BIN) $(DESTDIR)$(PREFIX)/bin/stripewise
	install -m 755 $(PRELOAD) $(DESTDIR)$(PREFIX)/lib/stripewise/libstripewise_preload.so
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(BIN) man --directory $(DESTDIR)$(PREFIX)/share/man/man1
	$(BIN) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/stripewise

clean: ## remove what was built and what demo and bench left
	cargo clean
	rm -rf demo-out bench-out
