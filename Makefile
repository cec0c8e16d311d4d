# make help says what can be made.

TARGET  := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Tests run a debug build, with its assertions; the demo, the benches and what is installed are release builds.
PROFILE := dev
TEST_BIN := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/stripewise
BIN     := $(TARGET)/release/stripewise
PRELOAD := $(TARGET)/release/libstripewise_preload.so
# Other features than the rest: a folder of its own keeps cargo from building either again.
DEMO_TARGET := $(TARGET)/demo
DEMO_BIN := $(DEMO_TARGET)/demo/stripewise
PREFIX  := /usr/local
DESTDIR :=
PYTHON  := python3
export PATH := $(PATH):$(HOME)/.cargo/bin
export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help setup engines build build-demo demo demo-hosts check test test-cargo test-programs torture torture-hosts fuzz bench bench-devices bench-hosts install packages wheel clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

setup: ## install the packages that are missing (or name them)
	@setup/install

# Tests that need an engine or hosts say that they are skipped where these cannot be had.
engines: ## install Ceph, etcd and what a network of namespaces needs for the tests on them, where this user may
	@setup/install --engines || echo "== tests on storage engines and on several hosts will be skipped: see above"

# One after the other: built together, the library would link what the command's features add to the crates that both use.
build: ## the command and the preload library, release build
	@setup/install --build
	cargo build --release --package stripewise-preload
	cargo build --release --package stripewise-cli

build-demo: setup ## what the demo runs: a build of its own, without Arrow and Parquet
	cargo build --profile demo --package stripewise-cli --package stripewise-preload --no-default-features --target-dir $(DEMO_TARGET)

demo: build-demo ## the main job on an emulated testbed; leaves demo-out/report.html and demo-out/results.json
	$(DEMO_BIN) demo

# As root; what is missing is said.
demo-hosts: build-demo engines ## the same on four hosts and a real Ceph with throttled servers, 4 minutes; leaves demo-hosts-out/
	$(PYTHON) demo/hosts.py --stripewise $(DEMO_BIN) --out demo-hosts-out

check: ## format, lints, dependencies, documentation; names the tools that are missing
	@setup/check

test: ## everything: make check, builds, unit and integration tests, real programs under redirection
	@start=$$(date +%s); \
	for stage in setup engines check test-cargo test-programs; do \
	    echo "== $$stage"; \
	    $(MAKE) --no-print-directory $$stage || { echo "== $$stage failed: make test stops here"; exit 1; }; \
	done; \
	echo "== all tests passed in $$(($$(date +%s) - start)) s"

# Many tests wait for processes that they make fail, so twice as many at a time as there are processors.
TEST_THREADS := $(shell echo $$((2 * $$(nproc))))
# Built first: a test of the command preloads the library, and cargo test alone does not leave a cdylib behind. With all that cargo test
# builds: the features of dependencies are then the same, and nothing is built twice.
test-cargo: ## Rust tests of all crates
	cargo build --profile $(PROFILE) --workspace --lib --bins --tests --examples
	STRIPEWISE_LIBRARY_IS_BUILT=1 RUST_TEST_THREADS=$(TEST_THREADS) cargo test --profile $(if $(filter dev,$(PROFILE)),test,$(PROFILE)) --workspace

# Most of these wait for servers, leases and hosts that they make fail, so three at a time; those that take longest come first. Each is also a target of its own.
PROGRAM_TESTS := $(addprefix tests/,hosts/test_mpi.py hosts/test_torture.py hosts/test_faults.py engines/test_ceph_faults.py hosts/test_on_rados.py \
    hosts/test_moving.py hosts/test_names.py hosts/test_silent.py hosts/test_operations.py hosts/test_table.py hosts/test_operating.py hosts/test_on_orangefs.py \
    hosts/test_sharing.py hosts/test_bed.py engines/test_on_ceph.py engines/test_export.py engines/test_on_orangefs.py engines/test_standin.py programs/test_run.py darshan/test_darshan.py darshan/test_truth.py darshan/test_dftracer.py packages/test_packages.py python/test_files.py python/test_fsspec.py python/test_answers.py python/test_wheel.py)
.PHONY: test-on-disks $(PROGRAM_TESTS)
test-programs: ## C, Fortran, Python, HDF5 and shell programs, bare against redirected; the same on storage engines and several hosts
	$(MAKE) --no-print-directory --jobs 3 --keep-going --output-sync=target tests/programs/run.py test-on-disks $(PROGRAM_TESTS)

# Python modules of Ceph are those of the system's Python.
tests/engines/test_on_ceph.py tests/engines/test_ceph_faults.py tests/engines/test_export.py: PYTHON := /usr/bin/python3
$(PROGRAM_TESTS):
	STRIPEWISE=$(TEST_BIN) $(PYTHON) -W ignore tests/limited.py $@
.PHONY: tests/programs/run.py
tests/programs/run.py:
	STRIPEWISE=$(TEST_BIN) $(PYTHON) $@ --strict
test-on-disks: tests/programs/run.py
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
torture: export STRIPED_MOUNT_ROUNDS := 100
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
	cargo test --package stripewise-cli --test mount agree_byte_by_byte -- --nocapture

# SEED, FIRST, ROUNDS (300), SILENCE (30 s) and FAULTS of the environment: see tests/hosts/torture.py.
torture-hosts: ## as root, hours: the protocol between hosts in all orders; hosts, agents, links and OSDs fail while programs of four hosts use one file
	cargo build --profile $(PROFILE) --workspace
	STRIPEWISE_EXPLORE=all cargo test --package stripewise-coherence --lib -- --nocapture --test-threads 1
	STRIPEWISE=$(TEST_BIN) $(PYTHON) -W ignore tests/hosts/torture.py

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
	cargo build --quiet --release --package stripewise-fuse --example passthrough
	cargo build --quiet --release --package stripewise-python
	cargo bench --quiet --no-run --package stripewise-planner --package stripewise-trace --package stripewise-sim --package stripewise-broker
	$(PYTHON) bench/run.py --stripewise $(BIN)

# DEVICES=--quick is a short form of it; see bench/devices/run.py.
DEVICES :=
bench-devices: build ## the proof on disks that seek: loop devices over FUSE, as root, 25 minutes; leaves bench-out/devices.json
	$(PYTHON) bench/devices/run.py --stripewise $(BIN) $(DEVICES)

# HOSTS="--only rados" is a part of it; see bench/hosts/run.py.
HOSTS :=
bench-hosts: build ## pools of a real Ceph alongside plain librados, opens, moves, lost masters, 10 minutes; leaves bench-out/hosts.json
	/usr/bin/python3 bench/hosts/run.py --stripewise $(BIN) $(HOSTS)
	/usr/bin/python3 bench/hosts/many_hosts.py

install: build ## the command, the library, manual pages and completions under PREFIX (/usr/local)
	packaging/stage $(DESTDIR)$(PREFIX) $(TARGET)/release

# For the oldest glibc that is promised, whatever this machine has.
GLIBC := 2.28
PORTABLE := $(shell uname -m)-unknown-linux-gnu
packages: ## a .deb, an .rpm and a tarball for glibc 2.28 and newer, in target/packages
	@setup/install --build
	@setup/zig
	PATH="$(CURDIR)/.venv/bin:$$PATH" cargo zigbuild --release --target $(PORTABLE).$(GLIBC) --package stripewise-preload
	packaging/init-first $(TARGET)/$(PORTABLE)/release/libstripewise_preload.so
	PATH="$(CURDIR)/.venv/bin:$$PATH" cargo zigbuild --release --target $(PORTABLE).$(GLIBC) --package stripewise-cli
	packaging/packages $(TARGET)/$(PORTABLE)/release $(TARGET)/packages $(GLIBC)

# The command and the library are those of the packages; the module has a profile of its own (see Cargo.toml).
wheel: ## the Python package with module, command and library: one abi3 wheel for glibc 2.28 and newer, in target/wheels
	@setup/install --build
	@setup/zig
	PATH="$(CURDIR)/.venv/bin:$$PATH" cargo zigbuild --release --target $(PORTABLE).$(GLIBC) --package stripewise-preload
	packaging/init-first $(TARGET)/$(PORTABLE)/release/libstripewise_preload.so
	PATH="$(CURDIR)/.venv/bin:$$PATH" cargo zigbuild --release --target $(PORTABLE).$(GLIBC) --package stripewise-cli
	PATH="$(CURDIR)/.venv/bin:$$PATH" packaging/wheel $(TARGET)/$(PORTABLE)/release $(TARGET)/wheels $(GLIBC)

clean: ## remove what was built and what demo and bench left
	cargo clean
	rm -rf demo-out demo-hosts-out bench-out
