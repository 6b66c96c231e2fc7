# The project's commands. Each target does everything that it needs, even on a bare Debian 12 (as
# root or with sudo): installs packages, fetches the model, configures and builds with CMake and
# Ninja. `cmake --preset release && ninja -C build` works as well.
#
#   make           build/tokamak                 make tidy       clang-tidy on what changed
#   make serve     the HTTP server               make format     clang-format, in place
#   make run       chat in the terminal          make lint       format, includes, sizes, links
#   make test      all tests                     make install    to PREFIX (/usr/local), DESTDIR
#   make bench     measure this machine          make clean      remove the build folders
#   make mutants   plant faults: tests find them make soak       the long runs (scripts/soak)
#   make emulator  the CUDA backend on a CPU, for tests: build/emulated/libtokamak_cuda.so
#
# MODEL=path   a model of your own (serve, run, bench)
# CUDA=1       with the CUDA backend; 0: without (default: 1 with an NVIDIA GPU and nvcc)
# ARGS='...'   more arguments for the program (serve, run) or for ctest (test, emulator-soak), or the
#              names of what to run (mutants, soak)
SHELL := /bin/sh
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
MODEL ?=
ARGS ?=
CUDA ?=
BINARY := build/tokamak
CMAKE_CUDA := $(if $(CUDA),-DTOKAMAK_CUDA=$(CUDA))
# Ninja shares no job server with make -j, so only one build may run at a time.
.NOTPARALLEL:

.PHONY: all
all: configure
	@ninja -C build -j $(JOBS) tokamak tokamak_backends

.PHONY: deps configure
deps:
	@scripts/install-deps build
configure: deps
	@[ -f build/build.ninja -a -z "$(CUDA)" ] || \
	  cmake --preset release $(CMAKE_CUDA) --log-level=WARNING

.PHONY: serve run bench
serve: all
	@model="$(MODEL)"; [ -n "$$model" ] || model=$$(scripts/fetch-model) && \
	  exec $(BINARY) serve "$$model" $(ARGS)
run: all
	@model="$(MODEL)"; [ -n "$$model" ] || model=$$(scripts/fetch-model) && \
	  exec $(BINARY) run "$$model" $(ARGS)
bench: all
	@model="$(MODEL)"; [ -n "$$model" ] || model=$$(scripts/fetch-model) && \
	  $(BINARY) bench latency "$$model" --json && $(BINARY) bench throughput "$$model" --json

.PHONY: test test-build
test-build:
	@scripts/install-deps build test
	@cmake --preset release -DTOKAMAK_TESTS=ON $(CMAKE_CUDA) --log-level=WARNING
	@ninja -C build -j $(JOBS)
test: test-build
	@scripts/fetch-model >/dev/null
	@scripts/setup-test-refs >/dev/null
	@scripts/ctest build $(ARGS)

# All planted faults, and all long runs. .ci/run has a short form of each.
.PHONY: mutants soak
mutants:
	@scripts/install-deps build test
	@JOBS=$(JOBS) tools/run_mutants.sh $(ARGS)
soak: test-build
	@scripts/install-deps build test check
	@scripts/fetch-model >/dev/null
	@scripts/setup-test-refs >/dev/null
	@scripts/soak $(ARGS)

.PHONY: asan tsan fuzz aarch64-check
asan tsan:
	@scripts/install-deps build test check
	@scripts/sanitize $@
fuzz:
	@scripts/install-deps build test check
	@scripts/fuzz
aarch64-check: all
	@scripts/install-deps build check
	@JOBS=$(JOBS) scripts/aarch64-check

# Compiles and links the CUDA backend if there is a compiler for it, and compares what its kernels use
# with docs/gpu-kernels.md.
.PHONY: cuda-check
cuda-check:
	@scripts/install-deps build
	@if [ -x "$${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || command -v nvcc >/dev/null; then \
	  cmake --preset release -B build-cuda -DTOKAMAK_CUDA=1 -DTOKAMAK_TESTS=OFF \
	    --log-level=WARNING && ninja -C build-cuda -j $(JOBS) tokamak_backends tokamak_cuda_conformance && \
	  tools/kernel_resources.py --check build-cuda/libtokamak_cuda.so && scripts/cuda-other-gpus; \
	else echo "no nvcc here: the CUDA backend is not compiled"; fi

# TOKAMAK_CUDA_LIBRARY=build/emulated/libtokamak_cuda.so build/tokamak ... --device cuda
.PHONY: emulator
emulator: deps
	@cmake --preset release -DTOKAMAK_EMULATOR=ON $(CMAKE_CUDA) --log-level=WARNING
	@ninja -C build -j $(JOBS) tokamak tokamak_cuda_emulated

# All tests on the emulated backend, also those that take too long for every commit. Leaves out the
# tests labelled sample: each is a part of one of the long tests, run for every commit.
.PHONY: emulator-soak
emulator-soak: test-build
	@ctest --test-dir build -C soak -L emulator -LE sample --output-on-failure --no-tests=error \
	  -j $(JOBS) $(ARGS)

.PHONY: tidy format lint
tidy: test-build
	@scripts/install-deps check
	@tools/tidy.py
format:
	@scripts/install-deps check
	@git ls-files -co --exclude-standard '*.h' '*.cc' | xargs -r clang-format -i
lint:
	@scripts/install-deps check
	@scripts/lint

.PHONY: install clean
install: configure
	@ninja -C build -j $(JOBS) tokamak tokamak_backends tokamak_docs tokamak_shared
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)" --strip
clean:
	rm -rf build build-asan build-tsan build-aarch64 build-cuda
