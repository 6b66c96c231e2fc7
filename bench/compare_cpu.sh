#!/bin/sh
# Compares tokamak with llama.cpp, and with ik_llama.cpp if a checkout is given, on this machine's
# CPU: same model file, threads, pinning and shapes, with alternating runs. Prints a Markdown table;
# --json FILE keeps every measurement.
#
#   bench/compare_cpu.sh [--ik CHECKOUT] [--peers DIR] [--model FILE] [--cpus LIST] [--runs N]
#                        [--rows LIST] [--avx2] [--isa LIST] [--same-file] [--json FILE] [--quick]
#
#   --ik CHECKOUT  a git checkout of ik_llama.cpp
#   --peers DIR    where the others are built and their models kept, outside this tree
#                  (default: $XDG_CACHE_HOME/tokamak/peers)
#   --model FILE   a GGUF file (default: the one that `make` fetches); it is also converted to the
#                  others' own best types
#   --cpus LIST    cores to use, in taskset's format (default: one thread of each physical core)
#   --runs N       measurements per row and engine (default 5)
#   --rows LIST    from prompt, one, eight, thirty-two, chats (default: these), long-prompt, long
#                  (8,000 tokens), prompt-256, one-32, eight-32 (for large models)
#   --avx2         AVX2 only: builds the others for it, runs ours with --isa avx2
#   --isa LIST     our ISAs, a column for each (default: auto)
#   --same-file    all engines run the same file: no other types are made, and llama.cpp's best of plain
#                  and repacked counts
#   --tokamak BIN  our binary (default: build/tokamak)
#   --quick        one short run each, to see that everything works; the figures mean nothing
#   --build-only   only builds the others and makes their models
#
# bench/compare_cpu.py does the same with what is already built, and needs neither a compiler nor a
# network: --peers DIR has llama.cpp/bin/llama-bench and llama-batched-bench.
#
# llama.cpp comes from the source package llama-cpp-python, pinned below. On two cores, the first
# call builds both in half an hour; a full comparison takes about as long again.
. "$(dirname "$0")/../scripts/common.sh"

package=llama-cpp-python==0.3.36
archive=llama_cpp_python-0.3.36.tar.gz
archive_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

here=$(cd "$(dirname "$0")" && pwd)
peers=$cache_dir/peers
ik= model= cpus= avx2= same_file= build_only= tokamak=$here/../build/tokamak
pass=
while [ $# -gt 0 ]; do
  case $1 in
    --ik) ik=$(cd "$2" && pwd) && shift 2 ;;
    --peers) mkdir -p "$2" && peers=$(cd "$2" && pwd) && shift 2 ;;
    --model) model=$2 && shift 2 ;;
    --cpus) cpus=$2 && shift 2 ;;
    --tokamak) tokamak=$2 && shift 2 ;;
    --avx2) avx2=1 && shift ;;
    --build-only) build_only=1 && shift ;;
    --quick) pass="$pass --quick" && shift ;;
    --same-file) same_file=1 && pass="$pass --same-file" && shift ;;
    --runs | --rows | --isa | --json) pass="$pass $1 $2" && shift 2 ;;
    -h | --help) sed -n '2,/^\. /{/^\. /d;s/^# \{0,1\}//;p}' "$0" && exit 0 ;;
    *) die "unknown option $1; see $0 --help" ;;
  esac
done
[ -n "$model" ] || model=$("$here/../scripts/fetch-model")

# Fetches the sources of llama.cpp to $peers/llama.cpp-src.
fetch_llama() {
  src=$peers/llama.cpp-src
  [ "$(cat "$peers/.llama.cpp" 2>/dev/null)" = "$archive_sha256" ] && return
  say "fetching llama.cpp ($package, 77 MB)"
  work=$(mktemp -d "$peers/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  # pip asks the package for its metadata, which needs its build tool.
  python3 -m venv "$work/venv"
  "$work/venv/bin/python" -m pip install --quiet --only-binary :all: \
    scikit_build_core==1.1.2 </dev/null
  PATH=$work/venv/bin:$PATH "$work/venv/bin/python" -m pip download --quiet --no-deps \
    --no-binary :all: --no-build-isolation --no-cache-dir --dest "$work" "$package" </dev/null ||
    die "could not fetch $package"
  has_sha256 "$work/$archive" "$archive_sha256" || die "$archive is not the file it should be"
  rm -rf "$src" "$peers/llama.cpp" "$peers/llama.cpp-avx2"
  mkdir "$src"
  tar -xzf "$work/$archive" -C "$src" --strip-components=3 --wildcards '*/vendor/llama.cpp/*'
  echo "$archive_sha256" >"$peers/.llama.cpp"
  rm -rf "$work"
}

# build NAME SOURCE TARGET...: builds in $peers/NAME, for AVX2 if NAME ends in -avx2, else for this
# machine.
build() {
  build_dir=$peers/$1 source=$2 name=$1
  shift 2
  case $name in
    *-avx2) isa="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON
                 -DGGML_AVX512=OFF" ;;
    *) isa=-DGGML_NATIVE=ON ;;
  esac
  launcher=
  if command -v ccache >/dev/null; then
    launcher="-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache"
  fi
  if [ ! -f "$build_dir/build.ninja" ]; then
    say "building $name"
    # shellcheck disable=SC2086 # lists of words
    cmake -G Ninja -S "$source" -B "$build_dir" -DCMAKE_BUILD_TYPE=Release $launcher $isa \
      -DBUILD_SHARED_LIBS=OFF -DGGML_OPENMP=ON -DGGML_CCACHE=OFF -DGGML_IQK_FA_ALL_QUANTS=OFF \
      -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
      -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF >"$build_dir.log" 2>&1 ||
      die "could not configure $name; see $build_dir.log"
  fi
  ninja -C "$build_dir" "$@" >>"$build_dir.log" 2>&1 || die "could not build $name; see $build_dir.log"
}

mkdir -p "$peers/models"
fetch_llama
build llama.cpp "$peers/llama.cpp-src" llama-bench llama-batched-bench llama-quantize llama-server
[ -z "$ik" ] || build ik_llama.cpp "$ik" llama-bench llama-batched-bench
if [ -n "$avx2" ]; then
  build llama.cpp-avx2 "$peers/llama.cpp-src" llama-bench llama-batched-bench
  [ -z "$ik" ] || build ik_llama.cpp-avx2 "$ik" llama-bench llama-batched-bench
fi

stem=$(basename "$model" .gguf)
stem=${stem%.*}  # without the type of its weights
types='Q4_0 Q8_0 IQ4_NL'
[ -z "$same_file" ] || types=
for type in $types; do
  made=$peers/models/$stem.$type.gguf
  [ -f "$made" ] && continue
  say "making $made"
  "$peers/llama.cpp/bin/llama-quantize" --allow-requantize "$model" "$made.part" "$type" \
    >"$made.log" 2>&1 || die "could not quantize; see $made.log"
  mv "$made.part" "$made"
done
[ -z "$build_only" ] || exit 0

# shellcheck disable=SC2086 # a list of words
exec python3 "$here/compare_cpu.py" --tokamak "$tokamak" --model "$model" --peers "$peers" \
  ${ik:+--ik "$ik"} ${cpus:+--cpus "$cpus"} ${avx2:+--avx2} $pass
