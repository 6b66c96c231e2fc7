#!/bin/sh
# Applies each of tests/sim/mutants/*.patch to a copy of the tree, builds the simulation and the
# engine's tests there, and expects the simulation to find the fault, or else a test (a mutant that
# only wastes time breaks none of the simulation's rules). Prints one line per mutant; fails if one
# survives or does not apply.
#
#   tools/run_mutants.sh [NAME...]        all mutants, or the named ones
#   tools/run_mutants.sh --sample N       N mutants, selected by the commit's hash, until 150 s have
#                                         passed. Assumes that the tree itself passes its tests.
#   SCHEDULES=2000                        schedules per mutant that the simulation tries
. "$(dirname "$0")/../scripts/common.sh"

root=$(cd "$(dirname "$0")/.." && pwd)
schedules=${SCHEDULES:-2000}
sample=
if [ "${1:-}" = --sample ]; then
  sample=${2:?--sample needs a number}
  shift 2
fi

# select [NAME...]: the paths of the mutants to run, one per line.
select_mutants() {
  if [ -n "$sample" ]; then
    commit=$(git -C "$root" rev-parse HEAD)
    for patch in "$root"/tests/sim/mutants/*.patch; do
      echo "$(echo "$commit $(basename "$patch")" | sha256sum | cut -c1-16) $patch"
    done | sort | head -n "$sample" | cut -d' ' -f2-
    return
  fi
  [ $# -gt 0 ] || set -- $(cd "$root/tests/sim/mutants" && ls ./*.patch)
  for name in "$@"; do
    patch=$root/tests/sim/mutants/$(basename "$name" .patch).patch
    [ -f "$patch" ] || die "there is no mutant $name in tests/sim/mutants/"
    echo "$patch"
  done
}
chosen=$(select_mutants "$@")
total=$(ls "$root"/tests/sim/mutants/*.patch | wc -l)

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
trap 'exit 130' INT TERM
git -C "$root" ls-files -z --cached --others --exclude-standard |
  tar -C "$root" --null --ignore-failed-read -T - -cf - | tar -C "$copy" -xf -
# Uses a release build's flags, so that ccache finds everything that a mutant does not change. A
# mutant may leave a variable unused.
cat >"$copy/compile" <<LAUNCHER
#!/bin/sh
export CCACHE_BASEDIR=$copy CCACHE_NOHASHDIR=true
cache=\$(command -v ccache)
\$cache "\$@" 2>/dev/null || exec \$cache "\$@" -Wno-error
LAUNCHER
chmod +x "$copy/compile"
cmake -G Ninja -S "$copy" -B "$copy/build" -DCMAKE_CXX_COMPILER_LAUNCHER="$copy/compile" \
  -DCMAKE_BUILD_TYPE=Release -DTOKAMAK_TESTS=ON >"$copy/log"
build() { ninja -C "$copy/build" -j "${JOBS:-$(nproc)}" "$@" >"$copy/log" 2>&1; }
simulate() { timeout 300 "$copy/build/tests/sim/sim" --schedules "$schedules" >"$copy/log" 2>&1; }
unit_tests() {
  timeout 300 "$copy/build/src/engine/engine_test" >"$copy/log" 2>&1 &&
    timeout 300 "$copy/build/tests/sim/sim_test" >"$copy/log" 2>&1
}
build sim || { cat "$copy/log"; die "the tree does not build without a mutant"; }
if [ -z "$sample" ]; then
  { build engine_test sim_test && simulate && unit_tests; } ||
    { cat "$copy/log"; die "the tree fails without a mutant"; }
fi

# try PATCH: prints the result; fails if nothing found the fault.
try() {
  name=$(basename "$1" .patch)
  if ! patch -s -p1 -d "$copy" <"$1" >"$copy/log" 2>&1; then
    echo "STALE     $name: the patch does not apply"
    return 1
  fi
  result=0
  if ! build sim; then
    echo "STALE     $name: it does not compile"
    result=1
  elif ! simulate; then
    echo "caught    $name: $(grep -v '^repeat' "$copy/log" | tail -1 | cut -c1-150)"
  elif build engine_test sim_test && unit_tests; then
    echo "SURVIVED  $name: $(head -1 "$1")"
    result=1
  else
    echo "caught    $name: $(grep -m 1 FAILED "$copy/log" | cut -c1-150)"
  fi
  patch -s -R -p1 -d "$copy" <"$1"
  return $result
}

survivors=0 tried=0 start=$(date +%s)
for patch in $chosen; do
  if [ -n "$sample" ] && [ $(($(date +%s) - start)) -ge 150 ]; then break; fi
  try "$patch" || survivors=$((survivors + 1))
  tried=$((tried + 1))
done
echo "mutants: $tried of $total tried, $survivors not caught"
[ "$survivors" -eq 0 ]
