#!/bin/sh
# check_symbols.sh kernels.o: fails when an ISA's object file offers anything but its one function
# to the linker. An inline function compiled for a newer CPU could otherwise replace the portable
# copy that the rest of the program calls.
set -eu
offered=$(nm -C --defined-only --extern-only "$1" | grep -v ' T tokamak::cpu::[A-Za-z0-9]*Kernels()$' || true)
if [ -n "$offered" ]; then
  echo "$1 offers these symbols:" >&2
  echo "$offered" >&2
  exit 1
fi
