#!/bin/sh
# Applies each of tests/*/mutants/*.patch to a copy of the tree and builds there what should find the
# fault. For tests/sim/mutants that is the simulation, or else a test of the engine (a mutant that only
# wastes time breaks none of the simulation's rules); for tests/images/mutants the tests of src/images;
# for tests/local/mutants those of budgets, images and replicas in src/local; for
# tests/server/mutants those of the web client; for tests/ranks/mutants those of ranks in src/ops,
# src/nn, src/models and src/executor; for tests/workers/mutants those of worker processes
# in src/rpc and src/local.
# Prints one line per mutant; fails if one survives or does not apply.
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
    for patch in "$root"/tests/*/mutants/*.patch; do
      echo "$(echo "$commit $(basename "$patch")" | sha256sum | cut -c1-16) $patch"
    done | sort | head -n "$sample" | cut -d' ' -f2-
    return
  fi
  [ $# -gt 0 ] || set -- $(cd "$root" && ls tests/*/mutants/*.patch)
  for name in "$@"; do
    ls "$root"/tests/*/mutants/"$(basename "$name" .patch).patch" 2>/dev/null ||
      die "there is no mutant $name in tests/*/mutants/"
  done
}
chosen=$(select_mutants "$@")
total=$(ls "$root"/tests/*/mutants/*.patch | wc -l)

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
image_tests() { timeout 300 "$copy/build/src/images/images_test" >"$copy/log" 2>&1; }
local_tests() {
  timeout 300 "$copy/build/src/local/local_test" \
    --gtest_filter='ThinkingBudget*:Image*:RunnerShapeOfImages*:*Replica*:HashPrefixes*' >"$copy/log" 2>&1
}
server_tests() { timeout 300 "$copy/build/src/server/web_client_test" >"$copy/log" 2>&1; }
rank_tests() {
  for test in ops/ranks_test nn/nn_test models/models_test executor/executor_test; do
    timeout 300 "$copy/build/src/$test" \
      --gtest_filter='Rank*:Parallel*:Driver*:Remote*:ServeRank*:Stages*:Gguf/StageGolden*' >"$copy/log" 2>&1 || return 1
  done
}
worker_tests() {
  for test in rpc/rpc_test local/workers_test; do
    timeout 300 "$copy/build/src/$test" >"$copy/log" 2>&1 || return 1
  done
}
fails() { cat "$copy/log"; die "the tree $1 without a mutant"; }
case $chosen in
  */sim/*)
    build sim || fails "does not build"
    [ -n "$sample" ] || { build engine_test sim_test && simulate && unit_tests; } || fails "fails"
    ;;
esac
case $chosen in */images/*) build images_test && image_tests || fails "fails" ;; esac
case $chosen in */local/*) build local_test && local_tests || fails "fails" ;; esac
case $chosen in */server/*) build web_client_test && server_tests || fails "fails" ;; esac
worker_targets='rpc_test workers_test'
case $chosen in */workers/*) build $worker_targets && worker_tests || fails "fails" ;; esac
rank_targets='ranks_test nn_test models_test executor_test'
case $chosen in */ranks/*) build $rank_targets && rank_tests || fails "fails" ;; esac

# try PATCH: prints the result; fails if nothing found the fault.
try() {
  name=$(basename "$1" .patch)
  if ! patch -s -p1 -d "$copy" <"$1" >"$copy/log" 2>&1; then
    echo "STALE     $name: the patch does not apply"
    return 1
  fi
  result=0
  case $1 in
    */images/*) first=images_test find=image_tests ;;
    */local/*) first=local_test find=local_tests ;;
    */server/*) first=web_client_test find=server_tests ;;
    */workers/*) first=$worker_targets find=worker_tests ;;
    */ranks/*) first=$rank_targets find=rank_tests ;;
    *) first=sim find=simulate ;;
  esac
  if ! build $first; then
    echo "STALE     $name: it does not compile"
    result=1
  elif ! $find; then
    echo "caught    $name: $(grep -v '^repeat' "$copy/log" | grep . | tail -1 | cut -c1-150)"
  elif [ "$first" != sim ] || { build engine_test sim_test && unit_tests; }; then
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
