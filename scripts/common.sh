# Sourced by the other scripts, not run. Uses the same paths as src/base/paths.h.
set -eu

case "${XDG_CACHE_HOME:-}" in
  /*) cache_dir=$XDG_CACHE_HOME/tokamak ;;
  *) cache_dir=${HOME:?HOME is not set: set it, or XDG_CACHE_HOME, to say where to keep downloads}/.cache/tokamak ;;
esac
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { echo "tokamak: $*" >&2; }
die() {
  say "$*"
  exit 1
}

# has_sha256 FILE HASH: whether the file exists and has this hash.
has_sha256() {
  [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]
}
