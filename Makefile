# The commands of the project. Each is a few lines of shell in scripts/; this page names them and passes on:
#   MPI=mpich|openmpi|none   which MPI library (default mpich); each has a build directory of its own
#   JOBS=N                   how many compilers and tests at once (default: one per processor)
#   TEST_ARGS="..."          more arguments for ctest;  PYTEST_ARGS="..."  for pytest
#   PREFIX=DIR               where `make install` puts things
# Paths below are relative, so the tree may lie in a directory whose name has spaces.
MPI ?= mpich
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
TEST_ARGS ?=
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 30
SEEDS ?= 100000
KILLS ?= 10000
SEED ?=
SCR ?=
VELOC ?=
AGENTS ?= drawn
BUILD := build/$(if $(filter none,$(MPI)),nompi,$(MPI))
# Presets have their own build directories (CMakePresets.json).
export MPI JOBS BUILD TEST_ARGS PYTEST_ARGS FUZZ_SECONDS

ifeq ($(filter $(MPI),mpich openmpi none),)
$(error MPI=$(MPI) is not known; choose MPI=mpich, MPI=openmpi or MPI=none)
endif

.PHONY: help setup build demo test test-python wheels deb bench bench-llm bench-jax bench-planning bench-gpu bench-peers bench-collective bench-levels test-cluster test-scr test-veloc test-fti simulate chaos asan \
    tsan fuzz release-check docs format check-format install clean
.NOTPARALLEL:

help:
	@echo 'tailrace: background checkpoints of parallel programs into few files'
	@echo
	@echo '  make demo          install what is missing, build, and run the main job: an MPI simulation is'
	@echo '                     killed in the middle of a flush and restarts from its checkpoint'
	@echo '  make test          install what is missing, build, and run all tests'
	@echo
	@echo '  make setup         only install what is missing (Debian, Ubuntu: apt-get)'
	@echo '  make build         only build, into $(BUILD)'
	@echo '  make bench         speed, as ratios to memcpy, fio and a sequential read. The options of this and the other'
	@echo '                     benchmarks: BENCH_ARGS=--help; a quick look: BENCH_ARGS="--only single --repeats 1'
	@echo '                     --epochs 1 --warm-up 1 --single-mib 128"'
	@echo '  make test-python   build the Python package and check it: ruff, mypy, stubs, tests (with PyTorch, in a'
	@echo '                     virtual environment under ~/.cache/tailrace, made the first time)'
	@echo '  make wheels        wheels of the Python package in build/wheels, each tested in a Debian without a compiler'
	@echo '                     (root; PYTHONS="python3.11 python3.12", otherwise 3.10 to 3.14, the newest from a newer Debian)'
	@echo '  make deb           Debian packages in build/deb, checked with lintian, and installed and tried in a Debian without'
	@echo '                     a compiler (root, and a network for apt-get)'
	@echo '  make bench-llm     checkpoints of a language model: tailrace beside torch.save, DCP and safetensors'
	@echo '  make bench-jax     checkpoints of a training state in JAX: tailrace beside Orbax'
	@echo '  make bench-planning   what a save through DCP costs beside its data, as ranks and tensors grow'
	@echo '  make bench-gpu     copies of a training state from a GPU: tailrace beside one pinned copy and PyTorch'
	@echo '  make bench-peers   tailrace beside a file per process, MPI-IO, HDF5 and fio'
	@echo '  make bench-collective   collective I/O against the MPI library'"'"'s own two-phase I/O'
	@echo '  make bench-levels  redundancy: encoding against ISA-L, copies, rebuilding and save against the same work alone'
	@echo '  make test-cluster  on four simulated nodes with MooseFS: kills, nodes powered off in every phase, a server'
	@echo '                     frozen, tailrace run; and jobs of a real Slurm (root)'
	@echo '  make test-scr      the example programs of SCR, unmodified, over libscr; SCR=DIRECTORY has its sources,'
	@echo '                     otherwise they are cloned'
	@echo '  make test-veloc    the same with the test programs of VELOC; VELOC=DIRECTORY'
	@echo '  make test-fti      PROGRAM="COMMAND..." that was built with libfti: it is killed, goes on, and comes to the'
	@echo '                     same. DIRECTORY has its configuration file; RANKS=4 KILL_AFTER=20 (seconds)'
	@echo '  make simulate      SEEDS=100000 histories of whole jobs in virtual time, each decided by its seed;'
	@echo '                     NODES=64 of large jobs: the first job has that many nodes'
	@echo '  make chaos         KILLS=10000 of an MPI program, its agent, both, or a node with its tier, in every phase;'
	@echo '                     SEED=N begins with that seed, as the line says that is printed for a failure'
	@echo '  make asan, tsan    build with sanitizers and run the tests that need no MPI'
	@echo '  make fuzz          run every fuzz target for $(FUZZ_SECONDS) s (FUZZ_SECONDS=N)'
	@echo '  make release-check what a release needs besides: sanitizers, fuzzing, wheels, Debian packages, the simulated'
	@echo '                     cluster (root)'
	@echo '  make docs          build the site: build/site/index.html, all pages and references, to be read without a network'
	@echo '  make format        format the sources;  make check-format  fails when that would change something'
	@echo '  make install       install into PREFIX (now $(PREFIX))'
	@echo '  make clean         remove build/'
	@echo
	@echo '  MPI=mpich|openmpi|none, JOBS=N and TEST_ARGS="..." go with any of them, for example'
	@echo '  make test MPI=openmpi JOBS=4 TEST_ARGS="-L mpi"'

setup:
	@scripts/setup build test

build:
	@scripts/setup build
	@scripts/build --without-tests

demo:
	@scripts/setup build demo
	@scripts/build --without-tests
	@scripts/demo $(DEMO_ARGS)

test:
	@scripts/setup build test
	@scripts/build
	@scripts/python_env report >/dev/null || echo 'the test of `tailrace report` will be skipped'
	@scripts/python_env cmake >/dev/null || echo 'CMake 3.16 will not be tried'
	@scripts/test

test-python:
	@MPI=none scripts/setup build python
	@scripts/test_python

bench:
	@scripts/setup build bench
	@scripts/build --without-tests
	@scripts/with_mpi python3 benchmarks/bench.py --build "$(BUILD)" $(BENCH_ARGS)

wheels:
	@MPI=none scripts/setup build python clean
	@PYTHONS='$(PYTHONS)' DCP='$(DCP)' scripts/make_wheels

deb:
	@MPI=mpich scripts/setup build deb clean
	@scripts/make_deb

bench-llm:
	@MPI=none scripts/setup build python
	@scripts/bench_python llm $(BENCH_ARGS)

bench-jax:
	@MPI=none scripts/setup build python
	@scripts/bench_python jax $(BENCH_ARGS)

bench-planning:
	@MPI=none scripts/setup build python
	@scripts/bench_python planning $(BENCH_ARGS)

bench-gpu:
	@MPI=none scripts/setup build python
	@scripts/bench_python gpu $(BENCH_ARGS)

bench-peers:
	@scripts/setup build bench peers
	@scripts/build --without-tests
	@scripts/with_mpi python3 benchmarks/peers.py --build "$(BUILD)" $(BENCH_ARGS)

bench-collective:
	@scripts/setup build bench
	@scripts/build --without-tests
	@scripts/with_mpi python3 benchmarks/collective_bench.py --build "$(BUILD)" $(BENCH_ARGS)

bench-levels:
	@scripts/setup build bench
	@scripts/build --without-tests
	@"$(BUILD)/benchmarks/protect_bench"
	@"$(BUILD)/benchmarks/protect_levels" $(BENCH_ARGS)

test-cluster:
	@scripts/setup build cluster
	@scripts/build --without-tests
	@python3 tests/testbed/cluster_test.py --build "$(BUILD)" --mpi "$(MPI)"
	@scripts/test_slurm

test-scr:
	@scripts/setup build
	@scripts/build --without-tests
	@scripts/test_scr_programs $(SCR)

test-veloc:
	@scripts/setup build
	@scripts/build --without-tests
	@scripts/test_veloc_programs $(VELOC)

test-fti:
	@scripts/setup build
	@scripts/build --without-tests
	@RANKS='$(RANKS)' KILL_AFTER='$(KILL_AFTER)' scripts/test_fti_program $(DIRECTORY) $(PROGRAM)

simulate:
	@scripts/setup build test
	@scripts/build
	@SEEDS='$(SEEDS)' NODES='$(NODES)' scripts/simulate

chaos:
	@scripts/setup build test
	@scripts/build
	@KILLS='$(KILLS)' SEED='$(SEED)' AGENTS='$(AGENTS)' AT_ONCE='$(AT_ONCE)' scripts/with_mpi scripts/chaos

asan tsan:
	@MPI=none scripts/setup build test
	@scripts/preset $@

fuzz:
	@MPI=none scripts/setup build fuzz
	@scripts/fuzz

release-check:
	@.ci/run release

docs:
	@MPI=none scripts/setup docs
	@scripts/make_docs

format check-format:
	@MPI=none scripts/setup format
	@scripts/format $@

install:
	@scripts/setup build
	@scripts/build --without-tests
	cmake --install "$(BUILD)" --prefix "$(PREFIX)"

clean:
	rm -rf build
