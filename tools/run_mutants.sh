#!/bin/sh
# Applies each of tests/sim/mutants/*.patch to a copy of the tree, builds the simulation and the
# engine's tests there, and expects them to find the fault: the simulation, or failing that (a mutant
# that only wastes time breaks none of its rules) a test. Prints one line per mutant; fails if one
# survives.
#
#   tools/run_mutants.sh [schedules] [name ...]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
schedules=${1:-2000}
[ $# -gt 0 ] && shift
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$root/CMakeLists.txt" "$root/cmake" "$root/include" "$root/src" "$root/tests" "$copy"
for folder in tools packaging docs; do
  [ -e "$root/$folder" ] && cp -r "$root/$folder" "$copy"
done
sed -i 's/[ ;]-Werror//' "$copy/cmake/TokamakTargets.cmake"  # a mutant may leave a variable unused
cmake -G Ninja -S "$copy" -B "$copy/build" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
  -DCMAKE_BUILD_TYPE=Release > "$copy/log"
build() { nice ninja -C "$copy/build" "$@" > "$copy/log" 2>&1; }
simulate() { timeout 300 "$copy/build/tests/sim/sim" --schedules "$schedules" > "$copy/log" 2>&1; }
unit_tests() {
  timeout 300 "$copy/build/src/engine/engine_test" > "$copy/log" 2>&1 &&
    timeout 300 "$copy/build/tests/sim/sim_test" > "$copy/log" 2>&1
}
build sim engine_test sim_test || { cat "$copy/log"; exit 1; }
{ simulate && unit_tests; } || { echo "the tree fails without a mutant"; cat "$copy/log"; exit 1; }

survivors=0
for patch in "$root"/tests/sim/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  if [ $# -gt 0 ]; then
    case " $* " in *" $name "*) ;; *) continue ;; esac
  fi
  if ! patch -s -p1 -d "$copy" < "$patch" > "$copy/log" 2>&1; then
    echo "STALE     $name: the patch does not apply"
    survivors=$((survivors + 1))
    continue
  fi
  if ! build sim; then
    echo "STALE     $name: it does not compile"
    survivors=$((survivors + 1))
  elif ! simulate; then
    echo "caught    $name: $(grep -v '^repeat' "$copy/log" | tail -1 | cut -c1-150)"
  elif build engine_test sim_test && unit_tests; then
    echo "SURVIVED  $name: $(head -1 "$patch")"
    survivors=$((survivors + 1))
  else
    echo "caught    $name: $(grep -m 1 FAILED "$copy/log" | cut -c1-150)"
  fi
  patch -s -R -p1 -d "$copy" < "$patch"
done
[ "$survivors" -eq 0 ]
